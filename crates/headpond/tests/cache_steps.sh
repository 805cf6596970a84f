# What the test of block caches does inside its virtual machine; it reads what is printed here.
# A line `== STEP` begins a step, `-- CODE` ends it with the exit code.

step() {
  echo "== $1"
  shift
  "$@" 2>&1
  echo "-- $?"
}

insmod /modules/brd.ko rd_nr=4 rd_size=524288
sectors=$(cat /sys/block/vda/size)

step writecache dmsetup create wc --table "0 $sectors writecache s /dev/vdb /dev/ram0 4096 0"
step cache dmsetup create smq --table \
  "0 $sectors cache /dev/ram2 /dev/ram1 /dev/vdc 128 1 writeback smq 0"
names="wc=/dev/dm-0 smq=/dev/dm-1"
if command -v make-bcache >/dev/null; then
  bcache() {
    make-bcache --wipe-bcache --writeback -C /dev/ram3 -B /dev/vdd >/dev/null || return
    echo /dev/ram3 >/sys/fs/bcache/register
    echo /dev/vdd >/sys/fs/bcache/register
    sleep 1
    echo 0 >/sys/block/bcache0/bcache/sequential_cutoff
    ls /dev/bcache0
  }
  step bcache bcache
  names="$names bcache=/dev/bcache0"
fi

{
  printf '%s\n' 'name = "caches"' 'question = "What do the caches of this kernel make of a slow disk?"'
  for name in plain=/dev/vda $names; do
    # There is no fio here.
    printf '[[target]]\nname = "%s"\ndevice = "%s"\nload = "in-process"\n' "${name%%=*}" "${name#*=}"
  done
  printf '%s\n' '[matrix]' 'rw = ["randwrite"]' 'bs = ["4K"]' 'depth = [8]' 'size = "16M"' \
    '[rounds]' 'warm_up = 1' 'count = 3' 'seconds = 1' 'windows = 4'
} >/plan.toml
allowed='--overwrite /dev/vda'
for name in $names; do
  allowed="$allowed --overwrite ${name#*=}"
done
# shellcheck disable=SC2086 # words
step lab headpond lab run /plan.toml $allowed --out /out --json
told() { cat /out/environment.json && echo; }
step environment told
