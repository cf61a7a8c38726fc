/* SPDX-License-Identifier: Apache-2.0 */
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/**
 * What the programs in Java share: options given as name=value, results as
 * lines "name unit value", the clock, random numbers, and durations.
 */
class Common {
	static final long MS = 1_000_000;
	static final long SECOND = 1_000_000_000;
	private static final Map<String, String> OPTIONS = new HashMap<>();
	private static long clockCost;

	/** Asked for, tells what this is, and ends. */
	static void begin(String[] arguments, String version) {
		if (arguments.length == 1 && arguments[0].equals("about")) {
			System.out.println("compiler javac and C2 of " +
			    System.getProperty("java.vm.name") + " " +
			    System.getProperty("java.vm.version"));
			System.out.println("flags " + String.join(" ",
			    ManagementFactory.getRuntimeMXBean()
				.getInputArguments()));
			System.out.println("version " + version);
			System.exit(0);
		}
		for (String argument : arguments) {
			String[] option = argument.split("=", 2);

			must(option.length == 2, "no value: " + argument);
			OPTIONS.put(option[0], option[1]);
		}
		Thread.setDefaultUncaughtExceptionHandler((thread, trouble) -> {
			trouble.printStackTrace();
			Runtime.getRuntime().halt(2);
		});
		clockCost = measureClock();
	}

	static String option(String name, String otherwise) {
		return OPTIONS.getOrDefault(name, otherwise);
	}

	static long option(String name, long otherwise) {
		return Long.parseLong(option(name, Long.toString(otherwise)));
	}

	static void must(boolean condition, String what) {
		if (condition)
			return;
		System.err.println(what);
		Runtime.getRuntime().halt(2);
	}

	/** The case is one that this subject cannot do. */
	static void cannot(String why) {
		System.err.println(why);
		Runtime.getRuntime().halt(77);
	}

	static void print(String name, String unit, double value) {
		System.out.printf(
		    Locale.ROOT, "%s %s %.9g%n", name, unit, value);
	}

	/** CLOCK_MONOTONIC. */
	static long now() {
		return System.nanoTime();
	}

	/** What a reading of the clock costs, once compiled: the median of the
	 * last of many batches. */
	private static long measureClock() {
		long[] cost = new long[10_001];

		for (int batch = 0; batch < 50; batch++)
			fillClock(cost);
		Arrays.sort(cost);
		return cost[cost.length / 2];
	}

	private static void fillClock(long[] cost) {
		for (int i = 0; i < cost.length; i++) {
			long from = now();

			cost[i] = now() - from;
		}
	}

	static long clockCost() {
		return clockCost;
	}

	static void sleepUntil(long until) {
		long left;

		while ((left = until - now()) > 0)
			LockSupport.parkNanos(left);
	}

	static void await(Thread thread) {
		try {
			thread.join();
		} catch (InterruptedException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	/** SplitMix64. */
	static final class Random {
		private long state;

		Random(long seed) {
			state = seed;
		}

		long next() {
			long x = state += 0x9e3779b97f4a7c15L;

			x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
			x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
			return x ^ x >>> 31;
		}

		/** Below end, which is an int. */
		int below(int end) {
			return (int)((next() >>> 32) * end >>> 32);
		}
	}

	/**
	 * Durations, in memory that is there before the measurement. A power of
	 * two is divided into 64 parts: figures are at most 1.6 % too large.
	 */
	static final class Histogram {
		private static final int LOG = 6, PARTS = 1 << LOG;
		private final int[] cell = new int[(64 - LOG) * PARTS];
		private long count, early, max;

		/** The pages too are there afterwards. */
		void clear() {
			Arrays.fill(cell, 0);
			count = early = max = 0;
		}

		/** What is below zero is early, and counted by itself. */
		void add(long ns) {
			int log = 0, at = (int)ns;

			if (ns < 0) {
				early++;
				return;
			}
			if (ns >= PARTS) {
				log = 63 - Long.numberOfLeadingZeros(ns) - LOG;
				at = (log << LOG) + (int)(ns >> log);
			}
			cell[at]++;
			count++;
			max = Math.max(max, ns);
		}

		/** A call that began then, less the clock's own cost. */
		void addCall(long from) {
			add(Math.max(0, now() - from - clockCost));
		}

		void addAll(Histogram other) {
			for (int i = 0; i < cell.length; i++)
				cell[i] += other.cell[i];
			count += other.count;
			early += other.early;
			max = Math.max(max, other.max);
		}

		long count() {
			return count;
		}

		long early() {
			return early;
		}

		long max() {
			return max;
		}

		private static long upper(int at) {
			int log = (at >> LOG) - 1;

			if (at < 2 * PARTS)
				return at;
			return ((long)at - (log << LOG) + 1 << log) - 1;
		}

		/** What so large a part of them does not exceed. */
		long quantile(double part) {
			long rank = (long)Math.ceil(count * part), seen = 0;

			for (int at = 0; at < cell.length; at++) {
				seen += cell[at];
				if (seen >= rank && seen > 0)
					return Math.min(upper(at), max);
			}
			return max;
		}

		void printCalls(String name) {
			print(name + "_p50_ns", "ns", quantile(0.5));
			print(name + "_p99_ns", "ns", quantile(0.99));
			print(name + "_p999_ns", "ns", quantile(0.999));
			print(name + "_max_ns", "ns", max);
		}

		void printLate() {
			print("late_p50_ms", "ms", quantile(0.5) / 1e6);
			print("late_p99_ms", "ms", quantile(0.99) / 1e6);
			print("late_max_ms", "ms", max / 1e6);
		}
	}
}
