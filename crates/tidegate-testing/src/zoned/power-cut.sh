#!/bin/sh
# Resets the machine at once: memory is lost, devices keep what they acknowledged.
: >"$JOB/cut"
echo b >/proc/sysrq-trigger
sleep 100
