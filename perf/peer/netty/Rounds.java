/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What do timeouts cost that are not due for many rounds of the wheel? See
 * perf/rounds.c, whose options these are. Bytes are those that live in the
 * heap, after a collection; the worker's CPU is that of its thread.
 *
 * Far timeouts outlive collections, and a collector that copies lays those of a
 * bucket side by side, so that passing them over is cheap. This is what is
 * measured; far_fresh_cpu_percent is before any collection, when they lie in
 * the order in which they were made.
 */
public final class Rounds {
	private static final int BATCHES_A_SECOND = 1000;
	private static final long MINUTE_NS = 60 * Common.SECOND;
	private static final AtomicLong strays = new AtomicLong();
	private static final TimerTask FAR =
	    (Timeout timeout) -> strays.incrementAndGet();
	private static final Common.Histogram late = new Common.Histogram();
	private static Common.Random lot;
	private static long scheduled;
	private static volatile long fired;

	private Rounds() {
	}

	/** Of the worker alone. */
	private static void tell(long due) {
		late.add(Common.now() - due);
		fired = late.count() + late.early();
	}

	/** One timer's life. */
	private static final class Measure {
		double workerPercent, wakeups, bytes;
		private final HashedWheelTimer timer;
		private final long rate;

		Measure(long far, long tickMs, int buckets, long seconds,
		    long rate, boolean collect) {
			this.rate = rate;
			timer = Common.create(tickMs, buckets);
			long before = Common.live();

			for (long i = 0; i < far; i++)
				timer.newTimeout(FAR, 30 * MINUTE_NS +
				    (lot.next() >>> 1) % (30 * MINUTE_NS),
				    TimeUnit.NANOSECONDS);
			Common.settle(timer, tickMs);
			if (collect && far > 0)
				bytes = (double)(Common.live() - before) / far;
			traffic(seconds);
			awaitLast();
			timer.stop();
		}

		private void near() {
			long delay = lot.below((int)Common.SECOND);
			long due = Common.now() + delay;

			timer.newTimeout(timeout -> tell(due),
			    delay, TimeUnit.NANOSECONDS);
			scheduled++;
		}

		/** They have a second to go, and then much patience. */
		private void awaitLast() {
			long end = Common.now() + 30 * Common.SECOND;

			while (fired < scheduled && Common.now() < end)
				Common.sleepUntil(
				    Common.now() + 10 * Common.MS);
		}

		/** The first second, which fills the next, is not counted. */
		private void traffic(long seconds) {
			Path worker = Common.task("wheel");
			long begun = Common.now(), counted = 0;
			long cpu = 0, sleeps = 0;
			long batches = (seconds + 1) * BATCHES_A_SECOND;

			for (long batch = 0; batch < batches; batch++) {
				if (batch == BATCHES_A_SECOND) {
					counted = Common.now();
					cpu = Common.threadCpu(worker);
					sleeps = Common.sleeps(worker);
				}
				for (long i = 0; i < rate / BATCHES_A_SECOND;
				     i++)
					near();
				Common.sleepUntil(begun + (batch + 1) *
				    (Common.SECOND / BATCHES_A_SECOND));
			}
			counted = Common.now() - counted;
			cpu = Common.threadCpu(worker) - cpu;
			sleeps = Common.sleeps(worker) - sleeps;
			workerPercent = 100.0 * cpu / counted;
			wakeups = 1e9 * sleeps / counted;
		}
	}

	private static void report(
	    long far, Measure alone, Measure fresh, Measure with) {
		long lost = scheduled - late.count() - late.early();

		Common.print("far_cpu_percent", "%",
		    with.workerPercent - alone.workerPercent);
		Common.print("far_fresh_cpu_percent", "%",
		    fresh.workerPercent - alone.workerPercent);
		Common.print("worker_cpu_percent", "%", with.workerPercent);
		Common.print("near_cpu_percent", "%", alone.workerPercent);
		Common.print("wakeups", "1/s", with.wakeups);
		Common.print("near_wakeups", "1/s", alone.wakeups);
		if (far > 0)
			Common.print("bytes", "B", with.bytes);
		late.printLate();
		Common.print("early", "count", late.early());
		Common.print("lost", "count", lost);
		Common.print("strays", "count", strays.get());
	}

	public static void main(String[] arguments) {
		Common.begin(arguments);
		long far = Common.option("far", 1_000_000);
		long tickMs = Common.option("tick_ms", 1);
		int buckets = (int)Common.option("buckets", 512);
		long seconds = Common.option("seconds", 5);
		long rate = Common.option("rate", 10_000);

		Common.must(tickMs > 0 && buckets > 0 && seconds > 0 &&
		    rate >= BATCHES_A_SECOND, "options");
		lot = new Common.Random(Common.option("seed", 1));
		/* The first of all is for the compiler alone. */
		new Measure(far / 10, tickMs, buckets, 1, rate, true);
		Measure alone = new Measure(
		    0, tickMs, buckets, seconds, rate, true);
		Measure fresh = alone, with = alone;

		if (far > 0) {
			fresh = new Measure(
			    far, tickMs, buckets, seconds, rate, false);
			with = new Measure(
			    far, tickMs, buckets, seconds, rate, true);
		}
		report(far, alone, fresh, with);
	}
}
