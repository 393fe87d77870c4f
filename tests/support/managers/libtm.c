/* A substitute for the TM (task management) library of PBS (libpbs, libtorque), which is not installed in tests. All of
 * its nodes are this machine.
 *
 * It has the prototypes, the required order of calls and the errors of tm(3) of OpenPBS 20 and Torque 6. A call in the
 * wrong order or with wrong arguments returns the documented error, and is reported in the file $STAND_IN_REFUSED.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TM_SUCCESS = 0, TM_ENOTCONNECTED = 17002, TM_EBADENVIRONMENT = 17005, TM_ENOTFOUND = 17006, TM_BADINIT = 17007 };
enum { MOST = 4096 };
typedef unsigned int tm_task_id;

struct tm_roots {
    tm_task_id tm_me, tm_parent;
    int tm_nnodes, tm_ntasks, tm_taskpoolid;
    tm_task_id *tm_tasklist;
};

static int connected;
static struct { pid_t pid; int ended, status, event, *obit; } tasks[MOST];
static int count;
static struct { int event, error; } ready[MOST];
static int first, last, events;

static int refuse(const char *call, int error) {
    FILE *file = fopen(getenv("STAND_IN_REFUSED"), "a");
    fprintf(file, "%s: %d\n", call, error);
    fclose(file);
    return error;
}

static int done(int error) {
    ready[last % MOST].event = ++events;
    ready[last++ % MOST].error = error;
    return events;
}

static int slots(void) {
    FILE *file = fopen(getenv("PBS_NODEFILE"), "r");
    int lines = 0, c;
    while (file != NULL && (c = getc(file)) != EOF) lines += c == '\n';
    if (file != NULL) fclose(file);
    return lines;
}

int tm_init(void *info, struct tm_roots *roots) {
    static const char *needed[] = {"PBS_JOBID", "PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT"};
    (void)info;
    if (connected) return refuse("tm_init", TM_BADINIT);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (getenv(needed[i]) == NULL) return TM_EBADENVIRONMENT;
    memset(roots, 0, sizeof *roots);
    roots->tm_nnodes = slots();
    connected = 1;
    return TM_SUCCESS;
}

int tm_spawn(int argc, char **argv, char **envp, int where, tm_task_id *tid, int *event) {
    if (!connected) return refuse("tm_spawn", TM_ENOTCONNECTED);
    if (argc < 1 || argv[argc] != NULL || envp != NULL || count == MOST) return refuse("tm_spawn", TM_BADINIT);
    *tid = (tm_task_id)count + 1;
    if (where < 0 || where >= slots()) {
        *event = done(TM_ENOTFOUND);
        return TM_SUCCESS;
    }
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++) dup2(null, fd);
        for (int fd = 3; fd < 256; fd++) close(fd);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setsid();
        execvp(argv[0], argv);
        _exit(254);
    }
    tasks[count++].pid = pid;
    *event = done(TM_SUCCESS);
    return TM_SUCCESS;
}

int tm_kill(tm_task_id tid, int sig, int *event) {
    if (!connected) return refuse("tm_kill", TM_ENOTCONNECTED);
    if (tid < 1 || (int)tid > count) return refuse("tm_kill", TM_ENOTFOUND);
    *event = done(tasks[tid - 1].ended || killpg(tasks[tid - 1].pid, sig) != 0 ? TM_ENOTFOUND : TM_SUCCESS);
    return TM_SUCCESS;
}

int tm_obit(tm_task_id tid, int *obitval, int *event) {
    if (!connected) return refuse("tm_obit", TM_ENOTCONNECTED);
    if (tid < 1 || (int)tid > count) return refuse("tm_obit", TM_ENOTFOUND);
    *event = tasks[tid - 1].event = ++events;
    tasks[tid - 1].obit = obitval;
    return TM_SUCCESS;
}

int tm_poll(int poll_event, int *result_event, int wait, int *tm_errno) {
    int status;
    if (!connected) return refuse("tm_poll", TM_ENOTCONNECTED);
    if (poll_event != 0 || wait != 0) return refuse("tm_poll", TM_ENOTFOUND); /* not simulated: unused */
    *result_event = 0;
    if (first != last) {
        *result_event = ready[first % MOST].event;
        *tm_errno = ready[first++ % MOST].error;
        return TM_SUCCESS;
    }
    for (int i = 0; i < count; i++) {
        if (!tasks[i].ended && waitpid(tasks[i].pid, &status, WNOHANG) == tasks[i].pid) {
            tasks[i].ended = 1;
            tasks[i].status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
        }
        if (tasks[i].ended && tasks[i].obit != NULL) {
            *tasks[i].obit = tasks[i].status;
            tasks[i].obit = NULL;
            *result_event = tasks[i].event;
            *tm_errno = TM_SUCCESS;
            return TM_SUCCESS;
        }
    }
    return TM_SUCCESS;
}

int tm_finalize(void) {
    if (!connected) return refuse("tm_finalize", TM_ENOTCONNECTED);
    connected = 0;
    return TM_SUCCESS;
}
