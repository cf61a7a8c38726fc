# SPDX-License-Identifier: Apache-2.0
# needs pair cpu_ns
load "perf/plot/style"
set terminal svg size 1400, 700 background "white"
set title "pair: CPU of scheduling one timeout and cancelling an old one"
set ylabel "ns of CPU per pair, median"
set logscale y
set xtics rotate by -35
subjects = names("pair", "cpu_ns")
plot for [s in subjects] rows("pair", "cpu_ns", s) \
	using 3:xtic(1) title s
