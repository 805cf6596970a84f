# What the scripts of virtual machines share: a kernel that is fetched and not installed, and an
# initial RAM disk of busybox, one program and modules. Sourced, with `set -euo pipefail` in force.

cache=${HEADPOND_KERNEL:-${XDG_CACHE_HOME:-$HOME/.cache}/headpond/kernel}
# The newest of the release: with ublk, which 6.1 has not.
package='^linux-image-[0-9.]+(\+deb[0-9]+|-[0-9]+)-cloud-amd64$'

# The script's own head is its usage.
usage() { sed -n '2,/^set /p' "$0" | sed -e '/^set /d' -e 's/^# \{0,1\}//'; exit 2; }

fetch() {
  if [ -n "$(vmlinuz)" ] && find "$cache/lib/modules" -name 'ublk_drv.ko*' | grep -q .; then
    return 0
  fi
  local name work
  name=$(apt-cache search --names-only "$package" | sort -V | tail -1 | cut -d' ' -f1)
  if [ -z "$name" ]; then
    echo 'apt knows no such kernel' >&2
    return 1
  fi
  work=$(mktemp -d)
  (cd "$work" && timeout 300 apt-get -qq -o Acquire::http::Timeout=30 download "$name")
  mkdir -p "$cache"
  dpkg -x "$work"/*.deb "$cache"
  rm -rf "$work"
}

vmlinuz() { find "$cache/boot" -name 'vmlinuz-*' 2>/dev/null | sort -V | tail -1; }

# Copies a program and the libraries it is linked with.
add_program() {
  local root=$1 program=$2 name=$3
  mkdir -p "$root/bin"
  cp "$program" "$root/bin/$name"
  # A program that is linked with nothing has no such lines.
  { ldd "$program" 2>/dev/null | grep -oE '/[^ ]+' || true; } | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
}

# Starts a RAM disk in a folder: busybox, the program as headpond, and these modules.
begin_initrd() {
  local root=$1 program=$2 version name path
  shift 2
  mkdir -p "$root"/{proc,sys,dev,modules}
  add_program "$root" "$(command -v busybox)" busybox
  add_program "$root" "$program" headpond
  strip "$root/bin/headpond" 2>/dev/null || true
  version=$(basename "$(vmlinuz)")
  version=${version#vmlinuz-}
  for name in "$@"; do
    # What is built into the kernel is not found.
    path=$(find "$cache/lib/modules/$version/kernel/$name".ko* 2>/dev/null | head -1) || true
    case $path in
      *.xz) xz -dc "$path" >"$root/modules/$(basename "$name").ko" ;;
      ?*) cp "$path" "$root/modules/" ;;
      *) ;;
    esac
  done
}

# The first lines of its init: these modules are loaded, in this order. Kernels differ in what needs
# what, so it is done twice.
begin_init() {
  local name
  printf '#!/bin/busybox sh\n'
  # shellcheck disable=SC2016 # for the shell inside
  printf '%s\n' '/bin/busybox mount -t proc proc /proc' \
    '/bin/busybox mount -t sysfs sys /sys' '/bin/busybox mount -t devtmpfs dev /dev'
  for name in "$@" "$@"; do
    printf '/bin/busybox insmod /modules/%s.ko 2>/dev/null\n' "$(basename "$name")"
  done
}

# Packs the folder, and removes it.
end_initrd() {
  local root=$1 out=$2
  chmod +x "$root/init"
  (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$out"
  rm -rf "$root"
}
