# The frame of a job's script: devices are filled before it, zones reported after it. `$JOB` is the job's directory;
# `$JOB/devices` has a line for each zoned device: its path and, of one that is made here, what it is backed by.
cd /
mkdir /run/mnt /dev/shm
say() {
    echo "$1 $2"
    echo "$2" >"$JOB/result.part"
    mv "$JOB/result.part" "$JOB/result"
    exit
}
complaints() {
    dmesg -l emerg,alert,crit,err,warn,notice | tail -n 20
}
fail() {
    echo "$1"
    complaints
    say @@guest-end 125
}

# Copies parts, given as a list of "first length" in bytes.
move() {
    while read -r start length; do
        dd if="$1" of="$2" bs=1M iflag=direct,skip_bytes,count_bytes oflag=direct,seek_bytes conv=notrunc \
            skip="$start" seek="$start" count="$length" status=none || return 1
    done
}

# Makes a zoned device in the guest's memory, as told in "key value".
make_null() {
    mkdir "/sys/kernel/config/nullb/$1" || return 1
    while read -r key value; do
        echo "$value" >"/sys/kernel/config/nullb/$1/$key" || return 1
    done
    echo 1 >"/sys/kernel/config/nullb/$1/power"
}

fill() {
    n=0
    while read -r device backing; do
        case $backing in
            '') backing=$device ;;
            *) make_null "${device##*/}" <"$JOB/null$n" || fail "cannot make $device" ;;
        esac
        # QEMU has forgotten its zones, but not what is in them.
        move "$backing" "$device" <"$JOB/put$n" || fail "cannot write the zones of $device"
        blkzone report "$device" >"$JOB/began$n" || fail "cannot report the zones of $device"
        n=$((n + 1))
    done <"$JOB/devices"
}

take() {
    n=0
    while read -r device backing; do
        blkzone report "$device" >"$JOB/report$n" || fail "cannot report the zones of $device"
        if [ "$backing" ]; then
            # In units of 512 bytes; a full zone's pointer is at its end, a conventional one has none.
            sed 's/[:,]//g' "$JOB/report$n" | while read -r _ start _ _ _ cap _ wptr rest; do
                case $rest in
                    *'(em)'*) wptr=0 ;;
                    *'(fu)'* | *'(nw)'*) wptr=$cap ;;
                esac
                [ $((wptr)) = 0 ] || echo $((start * 512)) $((wptr * 512))
            done | move "$device" "$backing" || fail "cannot read $device"
        fi
        n=$((n + 1))
    done <"$JOB/devices"
}

boot=$(cat "$JOB/boots" 2>/dev/null || echo 0)
echo $((boot + 1)) >"$JOB/boots"
if [ "$boot" = 0 ]; then
    echo @@guest-begin
    fill
elif [ ! -e "$JOB/cut" ]; then
    fail 'the kernel restarted by itself'
fi
rm -f "$JOB/cut"
sh -e "$JOB/body$boot"
status=$?
[ $status = 0 ] || complaints
if [ $status = 0 ] && [ -e "$JOB/body$((boot + 1))" ]; then
    fail 'the script ended before its power was cut'
fi
take
say @@guest-end $status
