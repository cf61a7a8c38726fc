/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/**
 * How often does an idle timer wake up?
 *
 *   pending=0     timeouts that are an hour away
 *   per_second=0  beside them, so many a second are scheduled, one by one, due
 *                 200 ms later
 *   seconds=10  tick_ms=100
 */
public final class Idle {
	private Idle() {
	}

	public static void main(String[] arguments) {
		Common.begin(arguments);
		long seconds = Common.option("seconds", 10);
		long rate = Common.option("per_second", 0);
		HashedWheelTimer timer =
		    Common.create(Common.option("tick_ms", 100), 512);
		Path worker = Common.task("wheel");

		for (long i = Common.option("pending", 0); i > 0; i--)
			timer.newTimeout(timeout -> { }, 1, TimeUnit.HOURS);
		Common.sleepUntil(Common.now() + Common.SECOND);
		long begun = Common.now(), cpu = Common.threadCpu(worker);
		long sleeps = Common.sleeps(worker);

		for (long i = 0; i < seconds * rate; i++) {
			timer.newTimeout(
			    timeout -> { }, 200, TimeUnit.MILLISECONDS);
			Common.sleepUntil(begun +
			    (i + 1) * Common.SECOND / rate);
		}
		Common.sleepUntil(begun + seconds * Common.SECOND);
		double wall = Common.now() - begun;

		cpu = Common.threadCpu(worker) - cpu;
		sleeps = Common.sleeps(worker) - sleeps;
		Common.print("wakeups", "1/min", sleeps * 60e9 / wall);
		Common.print("worker_cpu_percent", "%", 100 * cpu / wall);
		Common.print("cpu_ms", "ms/min", cpu * 6e4 / wall);
		timer.stop();
	}
}
