/* The minimum for starting n copies of a command: posix_spawn in a loop, then wait for all.
 *
 *     posix_spawn COPIES COMMAND [ARGUMENT...]
 *     posix_spawn -m FILE COPIES COMMAND [ARGUMENT...]
 *
 * With -m, the peak resident memory in KiB of the largest child or descendant is written to FILE. The
 * measuring process must be small itself: a new process inherits the peak of its parent.
 *
 * The exit code is 0 if each copy exited with 0, 1 if a copy failed, 2 if a copy could not be started.
 */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int write_peak(const char *path)
{
	struct rusage spent;
	FILE *file = fopen(path, "w");

	if (!file || getrusage(RUSAGE_CHILDREN, &spent))
		return 2;
	fprintf(file, "%ld\n", spent.ru_maxrss);
	return fclose(file) ? 2 : 0;
}

int main(int argc, char **argv)
{
	const char *peak = NULL;
	int copies, pid, status, code = 0;

	if (argc > 2 && !strcmp(argv[1], "-m")) {
		peak = argv[2];
		argv += 2;
		argc -= 2;
	}
	if (argc < 3) {
		fprintf(stderr, "posix_spawn [-m FILE] COPIES COMMAND [ARGUMENT...]\n");
		return 2;
	}
	for (copies = atoi(argv[1]); copies > 0; copies--) {
		if (posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ)) {
			fprintf(stderr, "cannot start %s\n", argv[2]);
			code = 2;
			break;
		}
	}
	while (wait(&status) > 0)
		if (status && !code)
			code = 1;
	return peak && !code ? write_peak(peak) : code;
}
