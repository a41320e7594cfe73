/* The busy process of scheduler.py's server: it starts the process with the OpenMP threads, and never sleeps.

       scheduler COMMAND...

   It loads the OpenMP runtime, as a server with torch does: with OMP_PLACES and OMP_PROC_BIND, libgomp binds the
   initial thread to the first place when the program starts. COMMAND gets the affinity mask that is left. It
   exits with the exit code of COMMAND. */

#include <omp.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv)
{
    pid_t team;
    int status = 0;
    if (argc < 2 || omp_get_max_threads() < 1)
        return 2;
    if (posix_spawn(&team, argv[1], NULL, NULL, argv + 1, environ)) {
        perror(argv[1]);
        return 127;
    }
    while (waitpid(team, &status, WNOHANG) == 0)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
