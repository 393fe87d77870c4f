/* PMI-1 by hand: fences LENGTH COUNT. Each rank puts LENGTH bytes (0: nothing) and enters a fence; rank 0 tells how
 * long each of its fences took, in seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int fd;

static void ask(const char *text, const char *wanted)
{
    char answer[4096];
    ssize_t got, have = 0;
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        exit(2);
    do {
        got = read(fd, answer + have, sizeof answer - 1 - have);
        if (got <= 0)
            exit(3);
        have += got;
    } while (answer[have - 1] != '\n');
    answer[have] = 0;
    if (!strstr(answer, wanted))
        exit(4);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int length = atoi(argv[1]), count = atoi(argv[2]), rank = atoi(getenv("PMI_RANK"));
    char line[4096], value[2048];
    (void)argc;
    fd = atoi(getenv("PMI_FD"));
    memset(value, 'x', length);
    value[length] = 0;
    ask("cmd=init pmi_version=1 pmi_subversion=1\n", "rc=0");
    ask("cmd=barrier_in\n", "barrier_out"); /* all are here */
    for (int fence = 0; fence < count; fence++) {
        double begun = now();
        if (length) {
            snprintf(line, sizeof line, "cmd=put kvsname=k key=card-%d-%d value=%s\n", rank, fence, value);
            ask(line, "rc=0");
        }
        ask("cmd=barrier_in\n", "barrier_out");
        if (rank == 0)
            printf("%.6f\n", now() - begun);
    }
    ask("cmd=finalize\n", "finalize_ack");
    return 0;
}
