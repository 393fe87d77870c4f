/* report("progress", "0.42 half of it"): reports of a section's program; 0 when it was taken. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int report(const char *word, const char *text) {
    const char *where = getenv("REDMESH_REPORT"), *port = where ? strchr(where, ':') : NULL;
    struct sockaddr_in to = {.sin_family = AF_INET};
    char line[512], answer[256] = "";
    if (port == NULL) return 0;
    to.sin_port = htons(atoi(port + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), length = snprintf(line, sizeof line, "%s %s %s %s\n",
        getenv("REDMESH_TOKEN"), word, getenv("REDMESH_SECTION"), text);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && write(fd, line, length) == length)
        if (read(fd, answer, sizeof answer - 1) < 0) answer[0] = 0;
    close(fd);
    return strncmp(answer, "ok", 2) != 0;
}
