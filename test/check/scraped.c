/* SPDX-License-Identifier: Apache-2.0 */
/* What a user writes: answers one HTTP request on a port of 127.0.0.1, which it
 * prints, with the figures of a timer that has run a task. */
#include <hwt.h>
#include <arpa/inet.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/socket.h>

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	sem_post(arg);
}

static int
answer(const struct hwt *timer, int listener)
{
	int client = accept(listener, NULL, NULL);
	FILE *file = client < 0 ? NULL : fdopen(client, "r+");
	char line[512];

	if (file == NULL)
		return 1;
	while (fgets(line, sizeof(line), file) != NULL && line[0] != '\r')
		continue;
	fputs("HTTP/1.0 200 OK\r\n"
	      "Content-Type: text/plain; version=0.0.4\r\n\r\n",
	    file);
	return hwt_stats_write(timer, file, HWT_PROMETHEUS) || fclose(file);
}

int
main(void)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct hwt *timer;
	sem_t ran;

	if (bind(listener, (struct sockaddr *)&address, length) ||
	    listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		return 1;
	sem_init(&ran, 0, 0);
	if (hwt_create(&timer, NULL) ||
	    hwt_new_timeout(timer, NULL, task, &ran, HWT_MS(1)))
		return 1;
	while (sem_wait(&ran))
		continue;
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	return answer(timer, listener) || hwt_stop(timer, NULL) ||
	    hwt_destroy(timer);
}
