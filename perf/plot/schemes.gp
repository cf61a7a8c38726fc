# SPDX-License-Identifier: Apache-2.0
# needs schemes start_ns_[0-9]*
load "perf/plot/style"
set terminal svg size 1500, 550 background "white"
set xlabel "timers"
set logscale xy
set format x "%.0s %c"
set key inside left top
set multiplot layout 1, 3
do for [operation in "start stop tick"] {
	metric = operation."_ns_[0-9]+"
	subjects = names("schemes", metric)
	set title "schemes: ".operation
	set ylabel "ns, median"
	plot for [s in subjects] rows("schemes", metric, s) \
		using 2:3 with linespoints pt 7 ps 0.5 title s
}
unset multiplot
