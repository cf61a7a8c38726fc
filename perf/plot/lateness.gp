# SPDX-License-Identifier: Apache-2.0
# needs pair late_max_ms
load "perf/plot/style"
set terminal svg size 1200, 900 background "white"
subjects = names("pair", "late_max_ms")
set multiplot layout 3, 1
do for [part in "p50 p99 max"] {
	set title "pair: how late a probe of 200 ms starts beside the pairs, " \
		.part
	set ylabel "ms, median"
	plot [] [0:] for [s in subjects] rows("pair", "late_".part."_ms", s) \
		using 3:xtic(1) title s
}
unset multiplot
