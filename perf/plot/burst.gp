# SPDX-License-Identifier: Apache-2.0
# needs burst cpu_ns
load "perf/plot/style"
set terminal svg size 1200, 900 background "white"
set logscale y
set multiplot layout 3, 1
set title "burst: CPU of each timeout when all are due in one tick"
set ylabel "ns, median"
subjects = names("burst", "cpu_ns")
plot for [s in subjects] rows("burst", "cpu_ns", s) using 3:xtic(1) title s
set title "burst: when the last of them has started"
set ylabel "ms after the deadline"
plot for [s in subjects] rows("burst", "last_start_ms", s) \
	using 3:xtic(1) title s
set title "burst: a bystander's pairs meanwhile, p99.9"
set ylabel "ns"
subjects = names("burst", "by_p999_ns")
if (words(subjects) > 0) {
	plot for [s in subjects] rows("burst", "by_p999_ns", s) \
		using 3:xtic(1) title s
}
unset multiplot
