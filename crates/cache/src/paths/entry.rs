//! Promotion decisions for requests of this slice.

use crate::admission::Applicant;
use crate::engine::Engine;
use crate::log::{Survey, id_of};
use crate::stats::BypassReason;
use crate::types::BlockRun;
use headpond_block::{Request, RequestFlags};

impl Engine {
    /// Whether a write enters without anything to be counted or looked up.
    #[inline]
    pub(super) fn is_open_to(&self, request: &Request) -> bool {
        self.admission.borrow().is_open(id_of(request), is_streaming(request))
    }

    /// Why a request does not enter, whatever its blocks are.
    pub(crate) fn refuses(&self, request: &Request) -> Option<BypassReason> {
        if self.is_open_to(request) {
            return self.log.borrow().refuses_class(request);
        }
        let applicant = Applicant {
            class: id_of(request),
            is_streaming: is_streaming(request),
            filling: self.log.borrow().filling(),
        };
        let refusal = self.admission.borrow().refuses(applicant);
        refusal.or_else(|| self.log.borrow().refuses_class(request))
    }

    /// Why a write does not enter. Over blocks that the cache has, promotion is no question: going
    /// past it would end them.
    pub(super) fn refuses_write(&self, request: &Request, survey: Survey) -> Option<BypassReason> {
        let refusal = self.refuses(request);
        if refusal.is_some() || survey.mapped > 0 || self.is_open_to(request) {
            return refusal;
        }
        let filling = self.log.borrow().filling();
        let run = BlockRun::touching(request.range);
        let promotes = self.admission.borrow_mut().promotes_all(run, filling);
        (!promotes).then_some(BypassReason::Promotion)
    }
}

fn is_streaming(request: &Request) -> bool {
    request.flags.contains(RequestFlags::STREAMING)
}
