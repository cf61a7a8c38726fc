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
final class Rounds extends Netty {
	private static final int BATCHES_A_SECOND = 1000, BATCH = 10;
	private static final long MINUTE = 60 * SECOND;
	private static final AtomicLong strays = new AtomicLong();
	private static final TimerTask FAR =
	    (Timeout timeout) -> strays.incrementAndGet();
	private static final Histogram late = new Histogram();
	private static Random lot;
	private static long scheduled;
	private static volatile long fired;

	/** Of the worker alone. */
	private static void tell(long due) {
		late.add(now() - due);
		fired = late.count() + late.early();
	}

	/** One timer's life. */
	private static final class Measure {
		double workerPercent, bytes;
		private final HashedWheelTimer timer;

		Measure(long far, long tickMs, int buckets, long seconds,
		    boolean collect) {
			timer = create(tickMs, buckets);
			long before = live();

			for (long i = 0; i < far; i++)
				timer.newTimeout(FAR, 30 * MINUTE +
				    (lot.next() >>> 1) % (30 * MINUTE),
				    TimeUnit.NANOSECONDS);
			settle(timer, tickMs);
			if (collect && far > 0)
				bytes = (double)(live() - before) / far;
			traffic(seconds);
			awaitLast();
			timer.stop();
		}

		private void near() {
			long delay = lot.below((int)SECOND);
			long due = now() + delay;

			timer.newTimeout(timeout -> tell(due),
			    delay, TimeUnit.NANOSECONDS);
			scheduled++;
		}

		/** They have a second to go, and then much patience. */
		private void awaitLast() {
			long end = now() + PATIENCE;

			while (fired < scheduled && now() < end)
				sleepUntil(now() + 10 * MS);
		}

		/** The first second, which fills the next, is not counted. */
		private void traffic(long seconds) {
			Path worker = task("wheel");
			long begun = now(), counted = 0, cpu = 0;
			long batches = (seconds + 1) * BATCHES_A_SECOND;

			for (long batch = 0; batch < batches; batch++) {
				if (batch == BATCHES_A_SECOND) {
					counted = now();
					cpu = threadCpu(worker);
				}
				for (int i = 0; i < BATCH; i++)
					near();
				sleepUntil(begun + (batch + 1) *
				    (SECOND / BATCHES_A_SECOND));
			}
			counted = now() - counted;
			cpu = threadCpu(worker) - cpu;
			workerPercent = 100.0 * cpu / counted;
		}
	}

	private static void report(
	    long far, Measure alone, Measure fresh, Measure with) {
		long lost = scheduled - late.count() - late.early();

		print("far_cpu_percent", "%",
		    with.workerPercent - alone.workerPercent);
		print("far_fresh_cpu_percent", "%",
		    fresh.workerPercent - alone.workerPercent);
		print("worker_cpu_percent", "%", with.workerPercent);
		print("near_cpu_percent", "%", alone.workerPercent);
		if (far > 0)
			print("bytes", "B", with.bytes);
		late.printLate();
		print("early", "count", late.early());
		print("lost", "count", lost);
		print("strays", "count", strays.get());
	}

	public static void main(String[] arguments) {
		begin(arguments);
		long far = option("far", 1_000_000);
		long tickMs = option("tick_ms", 1);
		int buckets = (int)option("buckets", 512);
		long seconds = option("seconds", 5);

		must(tickMs > 0 && buckets > 0 && seconds > 0, "options");
		lot = new Random(option("seed", 1));
		/* The first of all is for the compiler alone. */
		new Measure(far / 10, tickMs, buckets, 1, true);
		Measure alone = new Measure(0, tickMs, buckets, seconds, true);
		Measure fresh = alone, with = alone;

		if (far > 0) {
			fresh = new Measure(
			    far, tickMs, buckets, seconds, false);
			with = new Measure(
			    far, tickMs, buckets, seconds, true);
		}
		report(far, alone, fresh, with);
	}
}
