#!/bin/bash
# Fills an image with a tree of small files in several ways, and unpacks a tar on a mount; prints medians as two tables.
#
#   docs/compare.sh [RUNS]
#
# 3 runs unless told. Measure on an idle machine. As root the loop mount is measured, too, and both of FUSE's transports.
# A program that is not installed is said to be missing.
#
#   TIDEGATE=target/release/tidegate   the program
#   FILES=50000 UNTAR=8000             how many files
#   TMPDIR=/var/tmp                    where trees and images are made
#   GUESTFISH=guestfish                the program; none: it is not measured
#   RING=keep                          leave the kernel's io_uring for FUSE as it is, and measure that alone
set -euo pipefail
export LC_ALL=C
fish=${GUESTFISH:-guestfish}
runs=${1:-3} files=${FILES:-50000} untar=${UNTAR:-8000}
tidegate=$(command -v "${TIDEGATE:-tidegate}") || { echo "no tidegate in the path: set TIDEGATE" >&2; exit 1; }
tidegate=$(realpath "$tidegate")
work=$(mktemp -d "${TMPDIR:-/var/tmp}/compare.XXXXXX")
ring=/sys/module/fuse/parameters/enable_uring
ring_was=$(cat $ring 2>/dev/null || true)

# ring Y|N: turns the kernel's io_uring for FUSE on or off; false where that is not to be.
ring() { [ "${RING:-}" != keep ] && [ -w $ring ] && echo "$1" > $ring; }

clean() {
    cd /
    umount -q "$work/mnt" 2>/dev/null || fusermount3 -q -u -z "$work/mnt" 2>/dev/null || true
    ring "$ring_was" || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
cd "$work"
mkdir mnt

# tree DIR N: N files in directories of 100, from nothing to 16 KiB, 4 KiB in the mean; the same each time.
tree() {
    awk -v n="$2" -v dir="$1" 'BEGIN {
        srand(1)
        for (i = 0; i < n; i++) {
            if (i % 100 == 0) { d = sprintf("%s/%04d", dir, i / 100); system("mkdir -p " d) }
            size = int(16384 * rand() ^ 3); text = sprintf("%d ", i); while (length(text) < size) text = text text
            file = sprintf("%s/file-%d", d, i); printf "%s", substr(text, 1, size) > file; close(file)
        }
    }'
}

# median COMMAND...: seconds of the median run. `prepare` goes before each run and does not count, `finish` behind it.
# A command that fails has no figure: what it said goes to standard error.
median() {
    local times start end
    times=$(
        for _ in $(seq "$runs"); do
            prepare
            start=$EPOCHREALTIME
            "$@" > said 2>&1 < /dev/null || { { echo "failed: $*"; cat said; } >&2; let_go; exit 1; }
            end=$EPOCHREALTIME
            finish
            echo $(( ${end/./} - ${start/./} ))
        done
    ) || { echo failed; return; }
    sort -n <<< "$times" |
        awk '{ t[NR] = $1 } END { m = t[int((NR + 1) / 2)] / 1e6; printf(m < 10 ? "%.2f s" : "%.0f s", m) }'
}
row() { printf '| %s | %s |\n' "$1" "$2"; }
prepare() { rm -f a.img; }
finish() { :; }
has() { command -v "$1" > /dev/null; }

# A file system in `a.img` is made, mounted at `mnt` by the given command, filled, and unmounted until it is written.
filled_by() {
    truncate -s "$size" a.img && mke2fs -q -t ext4 -F -N "$inodes" a.img && "$@" && cp -a tree/. mnt/ && let_go && sync a.img
}
let_go() {
    if mountpoint -q mnt; then umount mnt 2>/dev/null || fusermount3 -u mnt 2>/dev/null || fusermount -u mnt; fi
    # A server writes behind the unmounting. It has the image open until it ends.
    for _ in $(seq 6000); do pgrep -f "^fuse2fs .*$work" > /dev/null || return 0; sleep 0.01; done
}
by_mke2fs() { mke2fs -q -t ext4 -F -N "$inodes" -d tree a.img "$((size / 1024))k" && sync a.img; }
by_guestfish() {
    # Its virtual machine may never start, and leaves its own system behind.
    LIBGUESTFS_TMPDIR=$work LIBGUESTFS_CACHEDIR=$work timeout 600 "$fish" -N "a.img=fs:ext4:$((size * 3))" -m /dev/sda1 copy-in tree / && sync a.img
}
# by_tidegate FORMAT
by_tidegate() { "$tidegate" mkfs --quiet --format "$1" --from tree a.img; }

tree tree "$files"
size=$(( $(du -s --block-size=1 tree | cut -f1) * 3 / 2 + files * 512 + (64 << 20) ))
size=$(( size / 4096 * 4096 )) inodes=$(( files + files / 10 + 1000 ))

echo "| an image of $files files | median of $runs |"
echo "|---|---|"
row '`tidegate mkfs --from`, F2FS' "$(median by_tidegate f2fs)"
row '`tidegate mkfs --format ext4 --from`' "$(median by_tidegate ext4)"
if has mke2fs; then
    row '`mke2fs -d`' "$(median by_mke2fs)"
    loop='not the superuser'
    [ "$(id -u)" != 0 ] || loop=$(median filled_by mount -o loop a.img mnt)
    row '`mke2fs`, loop mount, `cp -a`' "$loop"
    fuse2fs='not installed'
    if has fuse2fs; then fuse2fs=$(median filled_by fuse2fs "$work/a.img" "$work/mnt"); fi
    row '`mke2fs`, `fuse2fs`, `cp -a`' "$fuse2fs"
else
    row '`mke2fs`' 'not installed'
fi
guestfish='not installed'
if has "$fish"; then guestfish=$(median by_guestfish); fi
row 'guestfish' "$guestfish"

rm -rf tree
tree tree "$untar"
tar -cf tree.tar -C tree .
unpacked() { tar -xf tree.tar -C mnt; }
finish() { let_go; }

echo
echo "| untar $untar files on the mount | median of $runs |"
echo "|---|---|"
# on_tidegate WAY: a row for each format.
on_tidegate() {
    for format in f2fs ext4; do
        prepare() {
            rm -f a.img
            "$tidegate" mkfs --quiet --format $format --size "$size" a.img
            "$tidegate" mount a.img mnt
        }
        finish() { "$tidegate" umount mnt; }
        row "Tidegate's ${format/f2fs/F2FS}, by $1" "$(median unpacked)"
    done
}
if ring Y; then
    on_tidegate io_uring
    ring N
    on_tidegate /dev/fuse
    ring "$ring_was"
elif [ "$ring_was" = Y ]; then
    on_tidegate io_uring
else
    on_tidegate /dev/fuse
fi
prepare() { rm -f a.img; truncate -s "$size" a.img; mke2fs -q -t ext4 -F -N "$inodes" a.img; "${mounts[@]}"; }
finish() { let_go; }
if has mke2fs && has fuse2fs; then
    mounts=(fuse2fs "$work/a.img" "$work/mnt")
    row '`fuse2fs`' "$(median unpacked)"
fi
if has mke2fs && [ "$(id -u)" = 0 ]; then
    mounts=(mount -o loop a.img mnt)
    row 'ext4 on a loop mount' "$(median unpacked)"
fi
