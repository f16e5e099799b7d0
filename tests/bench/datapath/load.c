/* The clients of the data path benchmark.
 *
 *     load PORT CONNECTIONS SECONDS BODY_BYTES [CHUNKS PAUSE_US]
 *
 * One thread, epoll; each connection sends its next request when the answer to the last is complete. Without CHUNKS for
 * SECONDS; with CHUNKS every connection asks for one stream and SECONDS is the longest that it may take. Prints one
 * JSON object. The answers of `engine.c` are expected: a JSON body by content-length, or events whose `@` is followed
 * by the time at which they were sent. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define STAMP_DIGITS 19
#define MAX_SAMPLES (1 << 22)

struct client {
    int fd;
    uint64_t began_ns;
    long body_left; /* -1: the head has not come; -2: chunked */
    char carry[64];
    size_t carried;
};

static int poller, live;
static char *request;
static size_t request_size;
static uint64_t requests, chunks, errors, reads, samples;
static uint32_t *sample_us;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void take_sample(uint64_t ns) {
    if (samples < MAX_SAMPLES) sample_us[samples++] = (uint32_t)(ns / 1000u);
}

static void ask(struct client *c) {
    c->body_left = -1, c->carried = 0, c->began_ns = now_ns();
    for (size_t done = 0; done < request_size;) {
        ssize_t n = send(c->fd, request + done, request_size - done, MSG_NOSIGNAL);
        if (n <= 0) return;
        done += (size_t)n;
    }
}

static void leave(struct client *c, int failed) {
    errors += (uint64_t)failed;
    close(c->fd);
    live--;
}

/* Count the events in `data` by their stamps; what may be the beginning of one is carried to the next read. */
static int read_events(struct client *c, char *data, size_t size, uint64_t now) {
    char *at = data, *end = data + size, *rest = data;
    while ((at = memchr(at, '@', (size_t)(end - at))) && end - at > STAMP_DIGITS) {
        uint64_t sent = strtoull(at + 1, NULL, 10);
        chunks++;
        take_sample(now > sent ? now - sent : 0);
        at += STAMP_DIGITS;
        rest = at;
    }
    if (size >= 5 && !memcmp(end - 5, "0\r\n\r\n", 5)) return 1;
    size_t keep = (size_t)(end - rest) < 32 ? (size_t)(end - rest) : 32;
    memcpy(c->carry, end - keep, keep);
    c->carried = keep;
    return 0;
}

/* 1: the answer is complete; 0: more must come; -1: it is wrong. */
static int read_answer(struct client *c, char *data, size_t size, uint64_t now) {
    if (c->body_left == -1) {
        char *end = memmem(data, size, "\r\n\r\n", 4);
        if (!end) {
            if (size > sizeof c->carry) return -1;
            memcpy(c->carry, data, c->carried = size);
            return 0;
        }
        if (memcmp(data, "HTTP/1.1 200", 12)) return fprintf(stderr, "load: %.60s\n", data), -1;
        char *length = strcasestr(data, "\r\ncontent-length:");
        c->body_left = length && length < end ? atol(length + 17) : -2;
        c->carried = 0;
        size -= (size_t)(end + 4 - data), data = end + 4;
    }
    if (c->body_left == -2) return size ? read_events(c, data, size, now) : 0;
    c->body_left -= (long)size;
    return c->body_left == 0 ? 1 : c->body_left > 0 ? 0 : -1;
}

static int on_readable(struct client *c, int again) {
    static char buffer[1 << 18];
    memcpy(buffer, c->carry, c->carried);
    ssize_t n = recv(c->fd, buffer + c->carried, sizeof buffer - c->carried - 1, 0);
    uint64_t now = now_ns();
    if (n <= 0) return -1;
    reads++;
    size_t size = c->carried + (size_t)n;
    buffer[size] = 0;
    c->carried = 0;
    int state = read_answer(c, buffer, size, now);
    if (state != 1) return state;
    requests++;
    if (again) take_sample(now - c->began_ns), ask(c);
    return again ? 0 : 1;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void build_request(int port, size_t body_bytes, const char *chunks_word, const char *pause_word) {
    char *filler = malloc(body_bytes + 1), *body;
    for (size_t i = 0; i < body_bytes; i++) filler[i] = "a word and another "[i % 19];
    filler[body_bytes] = 0;
    int size = chunks_word ? asprintf(&body, "{\"model\":\"m1\",\"stream\":true,\"messages\":"
                                      "[{\"role\":\"user\",\"content\":\"chunks=%s pause_us=%s %s\"}]}", chunks_word, pause_word,
                                      filler)
                           : asprintf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"model\":\"m1\"}", filler);
    request_size = (size_t)asprintf(&request,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\n"
        "User-Agent: OpenAI/Python 3.0.0\r\nContent-Type: application/json\r\nAuthorization: Bearer sk-benchmark\r\n"
        "Content-Length: %d\r\n\r\n%s", port, size, body);
}

int main(int count, char **words) {
    if (count != 5 && count != 7) return fprintf(stderr, "usage: load PORT CONNECTIONS SECONDS BODY_BYTES [CHUNKS PAUSE_US]\n"), 2;
    int port = atoi(words[1]), connections = atoi(words[2]), one = 1, streaming = count == 7;
    build_request(port, strtoul(words[4], NULL, 10), streaming ? words[5] : NULL, streaming ? words[6] : NULL);
    sample_us = malloc(MAX_SAMPLES * sizeof *sample_us);
    poller = epoll_create1(0);
    struct client *clients = calloc((size_t)connections, sizeof *clients);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < connections; i++, live++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &clients[i]};
        clients[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(clients[i].fd, (struct sockaddr *)&address, sizeof address)) return perror("load"), 1;
        setsockopt(clients[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        epoll_ctl(poller, EPOLL_CTL_ADD, clients[i].fd, &e);
    }
    uint64_t began = now_ns(), until = began + (uint64_t)(atof(words[3]) * 1e9);
    for (int i = 0; i < connections; i++) ask(&clients[i]);
    while (live && (!streaming || now_ns() < until)) {
        struct epoll_event events[256];
        int n = epoll_wait(poller, events, 256, 1000);
        for (int i = 0; i < n; i++) {
            int again = !streaming && now_ns() < until;
            int state = on_readable(events[i].data.ptr, again);
            if (state) leave(events[i].data.ptr, state < 0);
        }
    }
    double wall_s = (double)(now_ns() - began) / 1e9;
    qsort(sample_us, samples, sizeof *sample_us, compare);
    printf("{\"wall_s\":%.3f,\"requests\":%lu,\"chunks\":%lu,\"errors\":%lu,\"reads\":%lu,\"p50_us\":%u,\"p99_us\":%u}\n", wall_s,
           requests, chunks, errors + (uint64_t)live, reads, samples ? sample_us[samples / 2] : 0,
           samples ? sample_us[samples * 99 / 100] : 0);
    return 0;
}
