/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import java.util.concurrent.TimeUnit;

/**
 * How often does an idle timer wake up? See perf/idle.c, whose options these
 * are.
 */
final class Idle extends Netty {
	public static void main(String[] arguments) {
		begin(arguments);
		long seconds = option("seconds", 10);
		long rate = option("per_second", 0);
		HashedWheelTimer timer = create(option("tick_ms", 100), 512);

		for (long i = option("pending", 0); i > 0; i--)
			timer.newTimeout(timeout -> { }, 1, TimeUnit.HOURS);
		sleepUntil(now() + SECOND);
		long begun = now();
		Share worker = new Share("wheel");

		for (long i = 0; i < seconds * rate; i++) {
			timer.newTimeout(
			    timeout -> { }, 200, TimeUnit.MILLISECONDS);
			sleepUntil(begun + (i + 1) * SECOND / rate);
		}
		sleepUntil(begun + seconds * SECOND);
		worker.end();
		long wall = now() - begun;

		print("wakeups", "1/min", 60 * worker.wakeups(wall));
		print("worker_cpu_percent", "%", worker.percent(wall));
		print("cpu_ms", "ms/min", 600 * worker.percent(wall));
		timer.stop();
	}
}
