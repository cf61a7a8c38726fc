# SPDX-License-Identifier: Apache-2.0
# needs touch cpu_ns
load "perf/plot/style"
set terminal svg size 1000, 600 background "white"
set title "touch: CPU of putting off the idle limit of a random connection"
set xlabel "connections"
set ylabel "ns of CPU per touch, median, least and greatest"
set logscale xy
set xrange [5000:2000000]
set format x "%.0s %c"
subjects = names("touch", "cpu_ns")
plot for [i = 1:words(subjects)] some("touch", "cpu_ns", \
		word(subjects, i), "[0-9]+[km]?") \
	using 2:3:4:5 with yerrorlines lc i pt 7 ps 0.6 \
	title word(subjects, i), \
	for [i = 1:words(subjects)] some("touch", "cpu_ns", \
		word(subjects, i), "[0-9]+[km]?-any") \
	using 2:3 with lines lc i dt 2 \
	title word(subjects, i).", from 2 threads"
