/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What does a pair cost, schedule one timeout and cancel the oldest, when
 * nothing, or with mixed delays almost nothing, is ever due? See perf/pair.c,
 * whose options these are, but for handoff, probe and aged.
 */
final class Pair extends Netty {
	/** Pairs from one look at the clock to the next. */
	private static final int BATCH = 512;
	private static final long[] MIX = {50, 250, 1_000, 30_000};

	private static HashedWheelTimer timer;
	private static int producers, outstanding;
	private static long tickMs, pace;
	private static double seconds;
	private static boolean mixed, random;
	private static CyclicBarrier barrier;
	private static long begun;
	private static final AtomicLong ran = new AtomicLong();

	/** All timeouts share a task: Netty at its best. */
	private static final TimerTask TASK =
	    (Timeout timeout) -> ran.incrementAndGet();

	/** A thread that makes pairs. */
	private static final class Producer extends Thread {
		private final Timeout[] table = new Timeout[outstanding];
		final Histogram times = new Histogram();
		private final Random lot;
		private int place;
		long calls, refused;

		Producer(int number) {
			super("producer-" + number);
			lot = new Random(
			    option("seed", 1) * 1_000_003 + number);
		}

		private long delay() {
			return mixed ? MIX[(int)(lot.next() >>> 62)] : 30_000;
		}

		private int next() {
			if (random)
				return lot.below(outstanding);
			int now = place;

			place = now + 1 == outstanding ? 0 : now + 1;
			return now;
		}

		private Timeout schedule() {
			return timer.newTimeout(
			    TASK, delay(), TimeUnit.MILLISECONDS);
		}

		private void replace() {
			int at = next();

			if (!table[at].cancel())
				refused++;
			table[at] = schedule();
		}

		private void makePairs(int count) {
			for (; count > 0; count--) {
				if (calls++ % SAMPLE_EVERY != 0) {
					replace();
					continue;
				}
				long from = now();

				replace();
				times.addCall(from);
			}
		}

		private int behindPace(long now) {
			long step = (now - begun) / MS + 1;
			long target = step * pace / (1000 * producers);

			if (target > calls)
				return (int)Math.min(BATCH, target - calls);
			sleepUntil(begun + step * MS);
			return 0;
		}

		/** How many pairs come next; 0: the end. */
		private int nextBatch() {
			int batch = 0;

			while (batch == 0) {
				long now = now();

				if (now - begun >= seconds * 1e9)
					return 0;
				batch = pace > 0 ? behindPace(now) : BATCH;
			}
			return batch;
		}

		@Override
		public void run() {
			int batch;

			for (int i = 0; i < outstanding; i++)
				table[i] = schedule();
			for (int i = 0; i < 2; i++) {
				meet(barrier);
				calls = 0;
				times.clear();
				meet(barrier);
				while ((batch = nextBatch()) > 0)
					makePairs(batch);
				meet(barrier);
			}
			meet(barrier);
			for (Timeout timeout : table)
				if (!timeout.cancel())
					refused++;
		}
	}

	private static void readOptions() {
		producers = (int)option("producers", 1);
		outstanding = (int)option("outstanding", 1024);
		tickMs = option("tick_ms", 100);
		mixed = flag("mix");
		random = flag("random");
		must(producers > 0 && outstanding > 0 && tickMs > 0, "options");
		if (flag("handoff") || flag("probe") || flag("aged"))
			cannot("not with handoff, probe or aged");
	}

	private static Producer[] start() {
		Producer[] all = new Producer[producers];

		barrier = new CyclicBarrier(producers + 1);
		for (int i = 0; i < producers; i++) {
			all[i] = new Producer(i);
			all[i].start();
		}
		for (int i = 0; i < producers; i++)
			pin(all[i], i, producers);
		return all;
	}

	/** The same as will be measured, at a pace with which the worker keeps
	 * up. */
	private static void warmUp() {
		pace = 1_000_000;
		seconds = 1.5;
		meet(barrier);
		begun = now();
		meet(barrier);
		meet(barrier);
		meet(barrier);
		settle(timer, tickMs);
		seconds = Double.parseDouble(option("seconds", "1"));
		pace = option("pace", 0);
		System.gc();
	}

	/** From the first pair to the end of the last one's consequences. */
	private static Window measure() {
		Window window = new Window();

		begun = now();
		meet(barrier);
		meet(barrier);
		window.endWall();
		settle(timer, tickMs);
		window.end();
		return window;
	}

	/** A cancel fails when the task has been started, and only then. */
	private static void judgeOutcomes(long refused) {
		settle(timer, tickMs);
		must(mixed || ran.get() == 0, "what was not due has run");
		must(refused == ran.get(), refused +
		    " cancels failed, " + ran.get() + " timeouts have run");
	}

	public static void main(String[] arguments) {
		begin(arguments);
		readOptions();
		timer = create(tickMs, 512);
		Producer[] all = start();

		warmUp();
		Window window = measure();
		Histogram times = new Histogram();
		long done = 0, refused = 0;

		meet(barrier);
		for (Producer producer : all) {
			await(producer);
			times.addAll(producer.times);
			refused += producer.refused;
			done += producer.calls;
		}
		judgeOutcomes(refused);
		window.tell(done);
		times.printCalls("call");
		print("pairs_per_s", "1/s", done * 1e9 / window.wall);
		print("ran", "count", ran.get());
		timer.stop();
	}
}
