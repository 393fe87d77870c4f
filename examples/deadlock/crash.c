/* A crash: rank 3 writes behind the end of its strip. `yod -bt` says where, `-kill` ends the others.
 *   cc -g -o crash crash.c && yod -bt -kill -sz 4 ./crash
 */
#include <stdlib.h>
#include <unistd.h>

static void fill(double *strip, long cells)
{
    for (long cell = 0; cell < cells; cell++)
        strip[cell] = 1.0;
}

int main(void)
{
    int rank = atoi(getenv("YOD_RANK"));
    fill(malloc(1000 * sizeof(double)), rank == 3 ? 1L << 40 : 1000);
    pause();
    return 0;
}
