# What the test of NUMA binding does inside its virtual machine; it reads what is printed here.
# A line `== STEP` begins a step, `-- CODE` ends it with the exit code.

step() {
  echo "== $1"
  shift
  "$@" 2>&1
  echo "-- $?"
}

plan() {
  printf '%s\n' 'name = "nodes"' 'question = "Where does the load run?"'
  printf '[[target]]\nname = "%s"\ndevice = "/dev/%s"\nload = "in-process"\n' "$1" "$2"
  printf '%s\n' "$3" '[matrix]' 'rw = ["randread"]' 'bs = ["4K"]' 'depth = [8]' \
    '[rounds]' 'warm_up = 0' 'count = 1' 'seconds = 6' 'windows = 6'
}

# A line for each thread while the load is made: what it may run on, and where its memory is from.
bound() {
  headpond lab run "/$1.toml" --out "/$1" >/dev/null 2>&1 &
  sleep 4
  for task in "/proc/$!/task"/*; do
    echo "$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' "$task/status")" \
      "$(sed -n '1s/^[^ ]* \([^ ]*\).*/\1/p' "$task/numa_maps")"
  done
  wait $!
}

told() { cat "/$1/environment.json" && echo; }

for disk in vda vdb; do
  step "$disk shown" headpond drive show /dev/$disk --json
  plan near $disk '' >/$disk.toml
  step "$disk bound" bound $disk
  step "$disk told" told $disk
done
plan free vdb "$(printf 'cpus = "none"\nmemory = "none"')" >/free.toml
step 'free bound' bound free
plan said vdb "$(printf 'cpus = "0"\nmemory = "0"')" >/said.toml
step 'said bound' bound said
