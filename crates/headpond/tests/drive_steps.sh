# What the test of `headpond drive` does inside its virtual machine; it reads what is printed here.
# A line `== DISK STEP` begins a step, `-- CODE` ends it with the exit code.

step() {
  echo "== $disk $1"
  shift
  "$@" 2>&1
  echo "-- $?"
}

believed() { cat "/sys/block/$disk/queue/write_cache"; }

# Stands for the tool of a controller: it takes another word for on and off.
cat >/bin/tool <<'TOOL'
#!/bin/sh
case $2 in
  wb) echo 'write back' ;;
  wt) echo 'write through' ;;
esac | tee /sys/block/${1#/dev/}/device/scsi_disk/*/cache_type
echo "the tool ran"
TOOL
chmod +x /bin/tool

for disk in nvme0n1 sda sdb vda; do
  device=/dev/$disk
  step show headpond drive show $device --json
  step off headpond drive set $device write-cache=off
  step believed-off believed
  step shown-off headpond drive show $device --json
  step off-again headpond drive set $device write-cache=off
  step restore headpond drive restore $device
  step shown-restored headpond drive show $device --json
  step believed-restored believed
  step restore-again headpond drive restore $device
  step persistent headpond drive set $device write-cache=off --persistent
  step forgotten headpond drive restore $device
done

disk=vdb
step off headpond drive set /dev/vdb write-cache=off

disk=nvme0n1
headpond drive set /dev/nvme0n1 write-cache=off >/dev/null
echo 'write through' >/sys/block/nvme0n1/queue/write_cache
step blind headpond drive set /dev/nvme0n1 write-cache=on
echo 'write back' >/sys/block/nvme0n1/queue/write_cache
headpond drive restore /dev/nvme0n1 >/dev/null
echo 'write through' >/sys/block/nvme0n1/queue/write_cache
step deceived headpond drive show /dev/nvme0n1 --json

disk=sda
hook() { headpond drive set /dev/sda write-cache=off --hook "$1" --hook-values wb,wt $2; }
step hook-shown hook 'tool {device} {value}' ''
step hook-run hook 'tool {device} {value}' --yes
step hook-restore-shown headpond drive restore /dev/sda
step hook-restore headpond drive restore /dev/sda --yes
step hook-idle hook 'true {value}' --yes
