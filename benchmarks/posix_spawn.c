/* The least that starting n copies of a command can take: posix_spawn in a loop, then wait for all.
 *
 *     posix_spawn COPIES COMMAND [ARGUMENT...]
 *     posix_spawn -m FILE COPIES COMMAND [ARGUMENT...]
 *
 * With -m, the most memory in KiB that a single child, or one that a child waited for, had resident is
 * written to FILE. A meter must be small itself: a process that is started counts the peak of the one
 * that started it as its own.
 *
 * The exit code is 0 when every copy ended with 0, 1 when one did not, 2 when one could not be started.
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
