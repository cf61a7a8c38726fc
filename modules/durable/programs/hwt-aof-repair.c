/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt-aof-repair - makes Redis' append-only file whole after a loss of power,
 * before each start of Redis, with nobody there.
 *
 * A write that was cut short leaves the begin of a transaction at the end of
 * the last file, and nothing behind it. This is cut, and kept in a file beside
 * it. Whatever else is wrong is damage: cutting there would take away what
 * Redis has acknowledged. It is refused, with the count of what stands behind
 * it, and nothing is changed.
 *
 * WHAT A CUT CANNOT TAKE. Redis appends what it has acknowledged as commands,
 * or as transactions: MULTI, commands, EXEC. scan() walks them from the begin;
 * torn() is true only if the last one ends with the file, and
 *
 *   - what is there of it is the begin of a command, byte for byte
 *   - no whole command stands behind its begin: a damaged length, or number of
 *     arguments, would have swallowed one, if only the EXEC
 *   - there is no command of one word, but FLUSHALL and FLUSHDB: that may have
 *     been a MULTI or an EXEC
 *
 * So no single byte of a file, however damaged, makes it cut a transaction that
 * was whole. Of a command outside of a transaction, the last one in the file
 * can look cut short if its length is damaged.
 *
 * It is one file, and needs the C library alone: Redis' machine needs nothing
 * else of hwt.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef HWT_VERSION
#define HWT_VERSION "unknown"
#endif

#define PROGRAM "hwt-aof-repair"

enum {
	STATUS_YES, /* whole, or repaired */
	STATUS_NO, /* refused */
	STATUS_USAGE,
	STATUS_UNREACHABLE /* cannot be read or written */
};

enum {
	FILES_MAX = 1024, /* in a manifest */
	MANIFEST_MAX = 1 << 20, /* bytes */
	COMMAND_NAME_MAX = 128,
	DIGITS_MAX = 10,
	BLOCK = 512, /* what a disk writes at once, at least */
	ZEROS_MIN = 16, /* fewer at the end may be a damaged byte */
	COPIES_MAX = 1000
};

static const char usage[] =
    "usage: " PROGRAM " [--dry-run] DIRECTORY\n"
    "\n"
    "  DIRECTORY    Redis' appenddirname, as /var/lib/redis/appendonlydir\n"
    "  --dry-run    tells what is wrong, and changes nothing\n"
    "  --version    tells the version, and does nothing else\n"
    "  --help       tells this, and does nothing else\n";

static bool dry_run;

/* Messages. */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void
say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	(void)fputs(PROGRAM ": ", stderr);
	(void)vfprintf(stderr, format, list);
	(void)fputc('\n', stderr);
	va_end(list);
}

static _Noreturn void
fail(const char *what)
{
	say("%s: %s", what, strerror(errno));
	exit(STATUS_UNREACHABLE);
}

/* A page of a file could not be read. */
static void
on_sigbus(int number)
{
	static const char text[] = PROGRAM ": a file cannot be read\n";

	(void)number;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(STATUS_UNREACHABLE);
}

/* Commands. */

struct command {
	const char *name;
	uint64_t name_length, words;
	const char *next; /* what follows it */
};

enum found {
	WHOLE,
	SHORT, /* the end comes first, and all before it is right */
	WRONG
};

/* KIND DIGITS \r\n */
static enum found
read_number(const char **at, const char *end, char kind, uint64_t *number)
{
	const char *p = *at;
	const char *digits;

	*number = 0;
	if (p == end)
		return SHORT;
	if (*p++ != kind)
		return WRONG;
	for (digits = p; p < end && *p >= '0' && *p <= '9'; p++) {
		if (p - digits == DIGITS_MAX || (p > digits && *digits == '0'))
			return WRONG;
		*number = *number * 10 + (uint64_t)(*p - '0');
	}
	if (p == end)
		return SHORT;
	if (p == digits || *p++ != '\r')
		return WRONG;
	if (p == end)
		return SHORT;
	if (*p++ != '\n')
		return WRONG;
	*at = p;
	return WHOLE;
}

/* $LENGTH \r\n DATA \r\n */
static enum found
read_word(const char **at, const char *end, const char **word, uint64_t *length)
{
	enum found found = read_number(at, end, '$', length);
	const char *p = *at;
	uint64_t left;

	if (found != WHOLE)
		return found;
	*word = p;
	left = (uint64_t)(end - p);
	if (left > *length && p[*length] != '\r')
		return WRONG;
	if (left > *length + 1 && p[*length + 1] != '\n')
		return WRONG;
	if (left < *length + 2)
		return SHORT;
	*at = p + *length + 2;
	return WHOLE;
}

static bool
is_named(const struct command *command, const char *name)
{
	return command->name_length == strlen(name) &&
	    strncasecmp(command->name, name, command->name_length) == 0;
}

/* The name, of which left bytes are there. */
static bool
name_is_possible(const struct command *command, uint64_t left)
{
	uint64_t i;

	if (command->name_length == 0 ||
	    command->name_length > COMMAND_NAME_MAX)
		return false;
	for (i = 0; i < command->name_length && i < left; i++) {
		if (!isgraph((unsigned char)command->name[i]))
			return false;
	}
	return command->words == 1 || left < command->name_length ||
	    !(is_named(command, "MULTI") || is_named(command, "EXEC"));
}

static enum found
read_command(const char *p, const char *end, struct command *command)
{
	enum found found = read_number(&p, end, '*', &command->words);
	const char *word;
	uint64_t i, length;

	if (found != WHOLE)
		return found;
	if (command->words == 0)
		return WRONG;
	command->name = NULL;
	found = read_word(&p, end, &command->name, &command->name_length);
	if (command->name != NULL &&
	    !name_is_possible(command, (uint64_t)(end - command->name)))
		return WRONG;
	for (i = 1; i < command->words && found == WHOLE; i++)
		found = read_word(&p, end, &word, &length);
	command->next = p;
	return found;
}

/* #TS:DIGITS \r\n, which aof-timestamp-enabled puts before commands. */
static enum found
read_annotation(const char *p, const char *end, const char **next)
{
	static const char head[] = "#TS";
	uint64_t ignored;
	size_t left = (size_t)(end - p);
	size_t length = sizeof(head) - 1;
	enum found found;

	if (memcmp(p, head, left < length ? left : length) != 0)
		return WRONG;
	if (left <= length)
		return SHORT;
	p += length;
	found = read_number(&p, end, ':', &ignored);
	*next = p;
	return found;
}

/* A file. */

struct counts {
	uint64_t commands, transactions; /* commands: also of transactions */
};

struct scan {
	enum found found;
	const char *good; /* behind the last that is whole */
	const char *bad; /* where what is not whole begins */
	bool in_transaction;
	bool lonely; /* there is a command of one word, which may be damaged */
	struct counts before; /* good */
};

/* One command at scan->bad. False: no further. */
static bool
scan_command(struct scan *scan, const char *end, struct counts *open)
{
	struct command command;
	bool is_multi, is_exec;

	scan->found = read_command(scan->bad, end, &command);
	if (scan->found != WHOLE)
		return false;
	is_multi = is_named(&command, "MULTI");
	is_exec = is_named(&command, "EXEC");
	if (is_multi ? scan->in_transaction
		     : is_exec && !scan->in_transaction) {
		scan->found = WRONG;
		return false;
	}
	scan->lonely |= command.words == 1 && !is_multi && !is_exec &&
	    !is_named(&command, "FLUSHALL") && !is_named(&command, "FLUSHDB");
	if (is_multi)
		scan->in_transaction = true;
	else if (!is_exec)
		open->commands++;
	scan->bad = command.next;
	if (is_multi || (scan->in_transaction && !is_exec))
		return true;
	scan->before.commands += open->commands;
	scan->before.transactions += is_exec;
	*open = (struct counts){0};
	scan->in_transaction = false;
	scan->good = scan->bad;
	return true;
}

static struct scan
scan(const char *begin, const char *end)
{
	struct scan scan = {.found = WHOLE, .good = begin, .bad = begin};
	struct counts open = {0};
	const char *next;

	while (scan.bad < end) {
		if (*scan.bad != '#') {
			if (!scan_command(&scan, end, &open))
				return scan;
			continue;
		}
		scan.found = read_annotation(scan.bad, end, &next);
		if (scan.found != WHOLE)
			return scan;
		scan.bad = next;
	}
	if (scan.in_transaction)
		scan.found = SHORT;
	return scan;
}

/* The next whole command from p on; NULL: there is none. */
static const char *
find_command(const char *p, const char *end, struct command *command)
{
	for (; p < end; p++) {
		p = memchr(p, '*', (size_t)(end - p));
		if (p == NULL)
			return NULL;
		if (read_command(p, end, command) == WHOLE)
			return p;
	}
	return NULL;
}

/* What is whole behind damage. */
static void
count_behind(const char *p, const char *end, struct counts *counts)
{
	struct command command;
	bool in_transaction = false;
	const char *at;

	while ((at = find_command(p, end, &command)) != NULL) {
		if (at != p)
			in_transaction = false;
		if (is_named(&command, "MULTI"))
			in_transaction = true;
		else if (!is_named(&command, "EXEC"))
			counts->commands++;
		else {
			counts->transactions += in_transaction;
			in_transaction = false;
		}
		p = command.next;
	}
}

/* See the top. */
static bool
torn(const struct scan *scan, const char *end)
{
	struct command ignored;

	return scan->found == SHORT && !scan->lonely &&
	    (scan->bad == end ||
		find_command(scan->bad + 1, end, &ignored) == NULL);
}

/* Some file systems leave zeros, from a block on, where data was to come. The
 * end of what comes before them; NULL: these are none of that kind. */
static const char *
before_zeros(const char *begin, const char *end)
{
	const char *p = end;

	while (p > begin && p[-1] == 0)
		p--;
	return end - p >= ZEROS_MIN &&
		((p - begin) + BLOCK - 1) / BLOCK * BLOCK < end - begin
	    ? p
	    : NULL;
}

/* True: from scan->good on, it can be cut. Not to be asked if it is WHOLE. */
static bool
can_be_cut(struct scan *found, const char *begin, const char *end)
{
	const char *zeros = before_zeros(begin, end);
	struct scan shorter;

	if (torn(found, end))
		return true;
	if (zeros == NULL)
		return false;
	shorter = scan(begin, zeros);
	if (shorter.found != WHOLE && !torn(&shorter, zeros))
		return false;
	*found = shorter;
	found->found = SHORT;
	return true;
}

struct file {
	char *name;
	int fd;
	void *mapped; /* NULL: it is empty */
	const char *begin, *end;
};

static void
file_open(struct file *file, int folder)
{
	struct stat status;

	file->fd = openat(
	    folder, file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (file->fd < 0 && errno == ENOENT) {
		say("%s: the manifest names it, and it is not there",
		    file->name);
		exit(STATUS_NO);
	}
	if (file->fd < 0 || fstat(file->fd, &status) != 0)
		fail(file->name);
	if (!S_ISREG(status.st_mode)) {
		say("%s: is no regular file", file->name);
		exit(STATUS_NO);
	}
	file->mapped = NULL;
	file->begin = file->end = "";
	if (status.st_size == 0)
		return;
	file->mapped = mmap(
	    NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file->fd, 0);
	if (file->mapped == MAP_FAILED)
		fail(file->name);
	(void)madvise(file->mapped, (size_t)status.st_size, MADV_SEQUENTIAL);
	file->begin = file->mapped;
	file->end = file->begin + status.st_size;
}

static void
file_close(struct file *file)
{
	if (file->mapped != NULL)
		(void)munmap(file->mapped, (size_t)(file->end - file->begin));
	(void)close(file->fd);
}

/* Redis checks the sum of such a file itself, and appends nothing to it. */
static bool
is_snapshot(const struct file *file)
{
	return file->end - file->begin >= 5 &&
	    memcmp(file->begin, "REDIS", 5) == 0;
}

/* The cut. */

/* A lease for reading is not given while somebody has the file open for
 * writing, and a server has. */
static void
refuse_if_written(const struct file *file)
{
	if (fcntl(file->fd, F_SETLEASE, F_RDLCK) == 0) {
		(void)fcntl(file->fd, F_SETLEASE, F_UNLCK);
		return;
	}
	if (errno == EAGAIN) {
		say("%s: another process has it open for writing; stop Redis "
		    "first",
		    file->name);
		exit(STATUS_NO);
	}
	if (errno == EACCES) {
		say("%s: belongs to another user, so nobody can tell whether "
		    "Redis has it open; be that user, or root",
		    file->name);
		exit(STATUS_NO);
	}
	say("%s: this file system does not tell whether Redis has it open",
	    file->name);
}

static void
write_all(int fd, const char *p, const char *end, int folder, const char *name)
{
	ssize_t count;

	while (p < end) {
		count = write(fd, p, (size_t)(end - p));
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0) {
			say("%s: %s; nothing was cut", name, strerror(errno));
			(void)unlinkat(folder, name, 0);
			exit(STATUS_UNREACHABLE);
		}
		p += count;
	}
}

/* What is cut goes into a file of its own, which is on the disk, with its name,
 * before anything is cut: NAME.cut-OFFSET, or with .1, .2 and so on behind it
 * if there is one already. */
static void
keep_copy(
    const struct file *file, const char *from, int folder, char name[PATH_MAX])
{
	struct stat status, own;
	int fd = -1;
	int i, length;

	length = snprintf(
	    name, PATH_MAX, "%s.cut-%td", file->name, from - file->begin);
	for (i = 0; fd < 0 && i < COPIES_MAX; i++) {
		if (i > 0)
			(void)snprintf(
			    name + length, PATH_MAX - (size_t)length, ".%d", i);
		fd = openat(folder, name,
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd < 0 || fstat(file->fd, &status) != 0 || fstat(fd, &own) != 0)
		fail(name);
	write_all(fd, from, file->end, folder, name);
	/* Root may be who repairs. In Redis' own unit it is the owner, and a
	 * call of fchown, needed or not, would end us: SystemCallFilter. */
	if (own.st_uid != status.st_uid || own.st_gid != status.st_gid)
		(void)!fchown(fd, status.st_uid, status.st_gid);
	if (fchmod(fd, status.st_mode & 0777) != 0 || fsync(fd) != 0 ||
	    close(fd) != 0 || fsync(folder) != 0)
		fail(name);
}

/* The file stays the one it is, and so do its owner and mode. Its length is
 * changed at once, or not at all. */
static void
cut(const struct file *file, const struct scan *found,
    const struct counts *before, int folder)
{
	char name[PATH_MAX];
	struct stat status;
	int fd;

	if (dry_run) {
		say("%s: the last %td of its %td bytes are the begin of what "
		    "was not written to its end; %" PRIu64 " commands, %" PRIu64
		    " transactions are before them",
		    file->name, file->end - found->good,
		    file->end - file->begin, before->commands,
		    before->transactions);
		exit(STATUS_NO);
	}
	refuse_if_written(file);
	keep_copy(file, found->good, folder, name);
	fd = openat(folder, file->name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &status) != 0)
		fail(file->name);
	if (status.st_size != file->end - file->begin) {
		say("%s: has changed meanwhile; nothing was cut", file->name);
		exit(STATUS_NO);
	}
	if (ftruncate(fd, found->good - file->begin) != 0 || fsync(fd) != 0 ||
	    close(fd) != 0)
		fail(file->name);
	say("%s: cut from %td to %td bytes, to the end of the last that is "
	    "whole: %" PRIu64 " commands, %" PRIu64 " transactions; what was "
	    "cut is in %s",
	    file->name, file->end - file->begin, found->good - file->begin,
	    before->commands, before->transactions, name);
}

/* The manifest. */

struct manifest {
	struct file file[FILES_MAX];
	size_t count;
};

/* All of them. */
static char *
manifest_load(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char *text = malloc(MANIFEST_MAX + 1);
	size_t length = 0;
	ssize_t count = 1;

	if (fd < 0 || text == NULL)
		fail(name);
	while (count > 0 && length < MANIFEST_MAX) {
		count = read(fd, text + length, MANIFEST_MAX - length);
		length += count > 0 ? (size_t)count : 0;
	}
	if (count < 0)
		fail(name);
	(void)close(fd);
	text[length] = 0;
	return text;
}

static _Noreturn void
manifest_wrong(const char *line)
{
	say("the manifest has a line that it should not: %.80s", line);
	exit(STATUS_NO);
}

/* file NAME seq NUMBER type LETTER; b is what the others go on from, i what is
 * appended to, in the order of the lines; h is to be removed. */
static void
manifest_line(struct manifest *manifest, char *line)
{
	char *name = NULL;
	char type = 0;
	unsigned long seq;

	if (line[0] == '#' || line[0] == 0)
		return;
	if (sscanf(line, "file \"%m[^\"\\]\" seq %lu type %c", &name, &seq,
		&type) != 3) {
		free(name);
		name = NULL;
		if (sscanf(line, "file %m[^ \"] seq %lu type %c", &name, &seq,
			&type) != 3)
			manifest_wrong(line);
	}
	if (strchr(name, '/') != NULL || strchr("bih", type) == NULL ||
	    manifest->count == FILES_MAX)
		manifest_wrong(line);
	if (type == 'h')
		free(name);
	else
		manifest->file[manifest->count++] = (struct file){.name = name};
}

static bool
ends_with(const char *text, const char *end)
{
	size_t length = strlen(text);

	return length > strlen(end) &&
	    strcmp(text + length - strlen(end), end) == 0;
}

/* The manifest's name; NULL: there is none. Files without one would be left
 * alone by Redis, which then starts with nothing. */
static char *
manifest_find(int folder, const char *path)
{
	DIR *entries = fdopendir(dup(folder));
	char *found = NULL;
	bool has_data = false;
	struct dirent *entry;
	struct stat status;

	if (entries == NULL)
		fail(path);
	while ((entry = readdir(entries)) != NULL) {
		if (ends_with(entry->d_name, ".incr.aof") &&
		    fstatat(folder, entry->d_name, &status, 0) == 0)
			has_data |= status.st_size > 0;
		if (!ends_with(entry->d_name, ".manifest") ||
		    strncmp(entry->d_name, "temp", 4) == 0)
			continue;
		if (found != NULL) {
			say("%s: has more than one manifest", path);
			exit(STATUS_NO);
		}
		found = strdup(entry->d_name);
	}
	(void)closedir(entries);
	if (found == NULL && has_data) {
		say("%s: has no manifest, and Redis would start without the "
		    "data that is there",
		    path);
		exit(STATUS_NO);
	}
	return found;
}

static void
manifest_read(struct manifest *manifest, int folder, const char *name)
{
	char *text = manifest_load(folder, name);
	char *rest = text;
	char *line;

	while ((line = strsep(&rest, "\n")) != NULL)
		manifest_line(manifest, line);
	free(text);
}

/* All. */

static _Noreturn void
refuse(struct manifest *manifest, size_t damaged, const struct scan *found,
    const struct counts *before, int folder)
{
	struct file *file = &manifest->file[damaged];
	struct counts behind = {0};
	size_t i;

	count_behind(found->bad + (found->bad < file->end), file->end, &behind);
	for (i = damaged + 1; i < manifest->count; i++) {
		file_open(&manifest->file[i], folder);
		count_behind(
		    manifest->file[i].begin, manifest->file[i].end, &behind);
	}
	say("%s: damaged at or near byte %td of %td. Before it are %" PRIu64
	    " commands, %" PRIu64 " transactions; behind it %" PRIu64
	    " commands, %" PRIu64 " transactions, which a cut would lose. "
	    "Nothing was changed; see man hwt-aof-repair (8)",
	    file->name, found->bad - file->begin, file->end - file->begin,
	    before->commands, before->transactions, behind.commands,
	    behind.transactions);
	exit(STATUS_NO);
}

/* One file after the other; only the last one may end early. */
static void
repair(struct manifest *manifest, int folder)
{
	struct counts sum = {0};
	struct file *file;
	struct scan found;
	bool can = true;
	size_t i;

	for (i = 0; i < manifest->count; i++) {
		file = &manifest->file[i];
		file_open(file, folder);
		found = (struct scan){.found = WHOLE};
		if (!is_snapshot(file))
			found = scan(file->begin, file->end);
		if (found.found != WHOLE)
			can = i + 1 == manifest->count &&
			    can_be_cut(&found, file->begin, file->end);
		sum.commands += found.before.commands;
		sum.transactions += found.before.transactions;
		if (!can)
			refuse(manifest, i, &found, &sum, folder);
		if (found.found != WHOLE)
			cut(file, &found, &sum, folder);
		file_close(file);
	}
	if (dry_run)
		say("whole: %" PRIu64 " commands, %" PRIu64 " transactions",
		    sum.commands, sum.transactions);
}

static const char *
options_read(int argc, char **argv)
{
	const char *path = NULL;
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			(void)fputs(usage, stdout);
			exit(STATUS_YES);
		}
		if (strcmp(argv[i], "--version") == 0) {
			(void)puts(PROGRAM " " HWT_VERSION);
			exit(STATUS_YES);
		}
		if (strcmp(argv[i], "--dry-run") == 0)
			dry_run = true;
		else if (argv[i][0] != '-' && argv[i][0] != 0 && path == NULL)
			path = argv[i];
		else {
			(void)fputs(usage, stderr);
			exit(STATUS_USAGE);
		}
	}
	if (path == NULL) {
		(void)fputs(usage, stderr);
		exit(STATUS_USAGE);
	}
	return path;
}

int
main(int argc, char **argv)
{
	static struct manifest manifest;
	const char *path = options_read(argc, argv);
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *name;

	(void)signal(SIGBUS, on_sigbus);
	(void)signal(SIGIO, SIG_IGN); /* of a lease that somebody breaks */
	if (folder < 0 && errno == ENOENT) {
		say("%s: is not there, so there is nothing to repair", path);
		return STATUS_YES;
	}
	if (folder < 0)
		fail(path);
	name = manifest_find(folder, path);
	if (name == NULL)
		return STATUS_YES;
	manifest_read(&manifest, folder, name);
	free(name);
	repair(&manifest, folder);
	return STATUS_YES;
}
