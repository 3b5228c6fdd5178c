# Writes FILE past the page cache through Linux's asynchronous I/O, ROUNDS times, while READERS processes read it
# through the page cache. Prints how many reads, each after its write was reported, did not have what was written.
my ($path, $rounds, $readers) = @ARGV;
my ($setup, $getevents, $submit, $o_rdwr_direct) = (206, 208, 209, 040002);
my $block = 65536;
my ($context, $event, $room) = ("\0" x 8, "\0" x 32, "\0" x ($block + 4096));
syscall($setup, 8, $context) == 0 or die "io_setup: $!";
my $address = unpack('Q', pack('P', $room));
my $skip = -$address % 4096;
open(my $new, '>', $path) or die "$path: $!";
print $new "\0" x (4 * $block);
close $new;
sub look {
    open(my $f, '<', $path) or die "$path: $!";
    while (1) {
        for (0 .. 3) {
            sysseek($f, $_ * $block, 0);
            sysread($f, my $bytes, 4096);
        }
        exit if getppid() == 1;
    }
}
my @readers = map { fork || look } 1 .. $readers;
sysopen(my $direct, $path, $o_rdwr_direct) or die "$path: $!";
open(my $cached, '<', $path) or die "$path: $!";
my $stale = 0;
for my $i (1 .. $rounds) {
    my $data = pack('Q', $i) x ($block / 8);
    substr($room, $skip, $block) = $data;
    my $at = $i % 4 * $block;
    my $iocb = pack('QLLSsLQQqQLL', $i, 0, 0, 1, 0, fileno($direct), $address + $skip, $block, $at, 0, 0, 0);
    syscall($submit, unpack('Q', $context), 1, pack('P', $iocb)) == 1 or die "io_submit: $!";
    syscall($getevents, unpack('Q', $context), 1, 1, $event, 0) == 1 or die "io_getevents: $!";
    (unpack('QQqq', $event))[2] == $block or die "not all was written";
    sysseek($cached, $at, 0);
    sysread($cached, my $got, $block);
    $stale++ if $got ne $data;
}
kill 9, @readers;
wait for @readers;
print $stale;
