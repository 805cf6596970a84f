//! What kernels have in common whose vectors are whole: the bytes behind the last whole vector are
//! the portable kernel's.

/// The functions of a kernel, with `VECTOR`, `TURN`, `add_turn`, `pq_turn`, `add_multiple_vectors`,
/// `scale_vectors` and `solve_vectors` of the module that says it.
macro_rules! kernel_of_whole_vectors {
    ($name:literal, $feature:literal) => {
        use super::kernel::Kernel;
        use super::portable;
        use smallvec::SmallVec;

        static KERNEL: Kernel =
            Kernel { name: $name, sum, add, pq, add_pq, add_multiple, scale, solve_two };

        fn sum(sum: &mut [u8], sources: &[&[u8]]) {
            assert!(sources.iter().all(|source| source.len() == sum.len()));
            let whole = sum.len() / VECTOR * VECTOR;
            // SAFETY: as in `add`.
            unsafe { add_vectors::<false>(&mut sum[..whole], sources) };
            portable::sum(&mut sum[whole..], &source_tails(sources, whole));
        }

        fn add(sum: &mut [u8], sources: &[&[u8]]) {
            assert!(sources.iter().all(|source| source.len() == sum.len()));
            let whole = sum.len() / VECTOR * VECTOR;
            // SAFETY: this function is reached through `kernel` alone, which has detected the
            // feature; every source is as long as the sum.
            unsafe { add_vectors::<true>(&mut sum[..whole], sources) };
            portable::add(&mut sum[whole..], &source_tails(sources, whole));
        }

        fn pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
            let whole = whole_vectors(p, q, data);
            // SAFETY: as in `add`, with the lengths asserted by `whole_vectors`.
            unsafe { pq_vectors::<false>(&mut p[..whole], &mut q[..whole], data) };
            portable::pq(&mut p[whole..], &mut q[whole..], &tails(data, whole));
        }

        fn add_pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
            let whole = whole_vectors(p, q, data);
            // SAFETY: as in `add`, with the lengths asserted by `whole_vectors`.
            unsafe { pq_vectors::<true>(&mut p[..whole], &mut q[..whole], data) };
            portable::add_pq(&mut p[whole..], &mut q[whole..], &tails(data, whole));
        }

        fn add_multiple(sum: &mut [u8], factor: u8, source: &[u8]) {
            assert_eq!(sum.len(), source.len());
            let whole = sum.len() / VECTOR * VECTOR;
            // SAFETY: as in `add`, with the lengths asserted above.
            unsafe { add_multiple_vectors(&mut sum[..whole], factor, source) };
            portable::add_multiple(&mut sum[whole..], factor, &source[whole..]);
        }

        fn scale(strip: &mut [u8], factor: u8) {
            let (whole, tail) = strip.split_at_mut(strip.len() / VECTOR * VECTOR);
            // SAFETY: as in `add`; the length is one of whole vectors.
            unsafe { scale_vectors(whole, factor) };
            portable::scale(tail, factor);
        }

        fn solve_two(p: &mut [u8], q: &mut [u8], of_p: u8, of_q: u8) {
            assert_eq!(p.len(), q.len());
            let at = p.len() / VECTOR * VECTOR;
            let ((whole_p, tail_p), (whole_q, tail_q)) = (p.split_at_mut(at), q.split_at_mut(at));
            // SAFETY: as in `add`; both have the same length of whole vectors.
            unsafe { solve_vectors(whole_p, whole_q, of_p, of_q) };
            portable::solve_two(tail_p, tail_q, of_p, of_q);
        }

        /// The bytes of the strips that are whole vectors, once the lengths are known to agree.
        fn whole_vectors(p: &[u8], q: &[u8], data: &[Option<&[u8]>]) -> usize {
            assert_eq!(p.len(), q.len());
            assert!(data.iter().flatten().all(|strip| strip.len() == p.len()));
            p.len() / VECTOR * VECTOR
        }

        fn source_tails<'a>(sources: &[&'a [u8]], from: usize) -> SmallVec<[&'a [u8]; 16]> {
            sources.iter().map(|source| &source[from..]).collect()
        }

        fn tails<'a>(data: &[Option<&'a [u8]>], from: usize) -> SmallVec<[Option<&'a [u8]>; 16]> {
            data.iter().map(|strip| strip.map(|strip| &strip[from..])).collect()
        }

        /// # Safety
        /// The length of `sum` is a multiple of a vector and no source is shorter.
        #[target_feature(enable = $feature)]
        unsafe fn add_vectors<const ADD: bool>(sum: &mut [u8], sources: &[&[u8]]) {
            let mut at = 0;
            while at + TURN * VECTOR <= sum.len() {
                // SAFETY: `at` and the turn after it lie inside the sum, and inside each source.
                unsafe { add_turn::<ADD, TURN>(sum, sources, at) };
                at += TURN * VECTOR;
            }
            while at < sum.len() {
                // SAFETY: the length is a multiple of a vector, so one more is inside all of them.
                unsafe { add_turn::<ADD, 1>(sum, sources, at) };
                at += VECTOR;
            }
        }

        /// # Safety
        /// The length of `p` is a multiple of a vector; `q` and every strip are no shorter.
        #[target_feature(enable = $feature)]
        unsafe fn pq_vectors<const ADD: bool>(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
            let mut at = 0;
            while at + TURN * VECTOR <= p.len() {
                // SAFETY: `at` and the turn after it lie inside p, and inside q and each strip.
                unsafe { pq_turn::<ADD, TURN>(p, q, data, at) };
                at += TURN * VECTOR;
            }
            while at < p.len() {
                // SAFETY: the length is a multiple of a vector, so one more is inside all of them.
                unsafe { pq_turn::<ADD, 1>(p, q, data, at) };
                at += VECTOR;
            }
        }
    };
}

pub(super) use kernel_of_whole_vectors;
