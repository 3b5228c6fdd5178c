#!/bin/busybox sh
# Process 1: loads modules, borrows the host's root, runs the job there.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for m in /m/*; do
    case $m in
        *null_blk*) $b insmod "$m" nr_devices=0 ;;
        *) $b insmod "$m" ;;
    esac
done
p9() {
    $b mount -t 9p -o "trans=virtio,version=9p2000.L,msize=500000,$2" "$1" "/h$3"
}
p9 host cache=loose,ro ''
for d in proc sys dev; do
    $b mount --bind "/$d" "/h/$d"
done
$b mount -t tmpfs run /h/run
$b mount -t configfs config /h/sys/kernel/config
# Files that guest and host both write.
p9 job cache=none "$job"
n=0
while read -r dir; do
    p9 "share$n" cache=none "$dir"
    n=$((n + 1))
done <"/h$job/shares"
$b chroot /h /bin/sh "$job/outer"
$b sync
$b poweroff -f
