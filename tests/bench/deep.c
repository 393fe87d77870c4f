/* Ranks for the bench of stacks: everybody waits some calls deep, at one of four places. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) static int wait_below(int depth)
{
    if (depth > 0)
        return wait_below(depth - 1) + 1;
    pause();
    return 0;
}

int main(void)
{
    const char *rank = getenv("YOD_RANK");
    return wait_below(8 + (rank ? atoi(rank) % 4 : 0));
}
