/* An engine that costs almost nothing: the upstream of the data path benchmark.
 *
 *     engine PORT
 *
 * One thread, epoll. A POST whose body has `"stream":true` near its start is answered with server-sent events:
 * `chunks=N` of them, one each `pause_us=U` (0: as fast as the socket takes them), each in one HTTP chunk of its
 * own and one send() of its own. The words stand at the beginning of the message: nothing else survives routers that
 * know their fields and write the body anew. Every other request gets one JSON answer of about 560 bytes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define INPUT_BYTES (4 << 20)
#define OUTPUT_BYTES 8192
#define PEEK_BYTES 2048

struct connection {
    int fd, slot;                 /* slot: place among the streaming ones, -1 when not streaming */
    char *input;
    size_t input_size, input_room, body_left;
    char output[OUTPUT_BYTES];
    size_t output_size, output_done;
    long chunks_left;
    uint64_t pause_ns, due_ns;
};

static int poller;
static struct connection *streaming[65536];
static int streams;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void watch(struct connection *c, uint32_t events, int how) {
    struct epoll_event e = {.events = events, .data.ptr = c};
    epoll_ctl(poller, how, c->fd, &e);
}

static void stop_streaming(struct connection *c) {
    if (c->slot < 0) return;
    streaming[c->slot] = streaming[--streams];
    streaming[c->slot]->slot = c->slot;
    c->slot = -1;
}

static void drop(struct connection *c) {
    stop_streaming(c);
    close(c->fd);
    free(c->input);
    free(c);
}

/* 0: all is sent; 1: the socket is full; -1: the peer left. */
static int flush(struct connection *c) {
    while (c->output_done < c->output_size) {
        ssize_t n = send(c->fd, c->output + c->output_done, c->output_size - c->output_done, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            return 1;
        }
        if (n < 0) return -1;
        c->output_done += (size_t)n;
    }
    c->output_size = c->output_done = 0;
    return 0;
}

static void put(struct connection *c, const char *text) {
    size_t n = strlen(text);
    memcpy(c->output + c->output_size, text, n);
    c->output_size += n;
}

static void put_event(struct connection *c, const char *event) {
    char size[16];
    snprintf(size, sizeof size, "%zx\r\n", strlen(event));
    put(c, size), put(c, event), put(c, "\r\n");
}

static void put_chunk(struct connection *c) {
    char event[256];
    snprintf(event, sizeof event,
             "data: {\"id\":\"chatcmpl-8f2c1f5e\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"m1\","
             "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@%019llu\"},\"finish_reason\":null}]}\n\n",
             (unsigned long long)now_ns());
    put_event(c, event);
    if (--c->chunks_left == 0) {
        put_event(c, "data: [DONE]\n\n");
        put(c, "0\r\n\r\n");
        stop_streaming(c);
    }
}

static int pump(struct connection *c, uint64_t now) {
    while (c->slot >= 0 && c->output_size == 0 && (c->pause_ns == 0 || c->due_ns <= now)) {
        c->due_ns += c->pause_ns;
        put_chunk(c);
        if (flush(c) < 0) return -1;
    }
    return 0;
}

static const char ANSWER[] =
    "{\"id\":\"chatcmpl-8f2c1f5e0b7e4c0f9d\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"m1\",\"choices\":"
    "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello! This is a short answer of an engine that "
    "thinks nothing, as long as one or two real sentences, so that the answer is not smaller than a chat "
    "completion usually is; the rest of it is here for its length alone, and says so.\"},\"logprobs\":null,"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":128,\"completion_tokens\":64,\"total_tokens\":192}}";

static long number_after(const char *text, size_t size, const char *key) {
    const char *found = memmem(text, size, key, strlen(key));
    return found ? atol(found + strlen(key)) : 0;
}

static int answer(struct connection *c, const char *body, size_t size) {
    char head[256];
    if (!memmem(body, size, "\"stream\":true", 13)) {
        snprintf(head, sizeof head,
                 "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: engine\r\ncontent-length: %zu\r\n"
                 "content-type: application/json\r\n\r\n", sizeof ANSWER - 1);
        put(c, head), put(c, ANSWER);
        return flush(c);
    }
    c->chunks_left = number_after(body, size, "chunks=");
    c->pause_ns = (uint64_t)number_after(body, size, "pause_us=") * 1000u;
    /* Streams that begin together would send together; real ones do not. */
    c->due_ns = now_ns() + (c->pause_ns ? (uint64_t)rand() % c->pause_ns : 0);
    put(c, "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: engine\r\n"
           "content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
    c->slot = streams;
    streaming[streams++] = c;
    return flush(c);
}

static int read_request(struct connection *c) {
    for (;;) {
        if (c->input_room - c->input_size < 65536) {
            c->input_room = c->input_room ? c->input_room * 2 : 131072;
            if (c->input_room > INPUT_BYTES * 2) return -1;
            c->input = realloc(c->input, c->input_room);
        }
        ssize_t n = recv(c->fd, c->input + c->input_size, c->input_room - c->input_size - 1, 0);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return -1;
        c->input_size += (size_t)n;
        c->input[c->input_size] = 0;
        char *end = memmem(c->input, c->input_size, "\r\n\r\n", 4);
        if (!end) continue;
        char *length = strcasestr(c->input, "\r\ncontent-length:");
        size_t head = (size_t)(end - c->input) + 4;
        size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
        if (c->input_size < head + body) continue;
        c->input_size = 0;
        if (answer(c, c->input + head, body < PEEK_BYTES ? body : PEEK_BYTES) < 0) return -1;
    }
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct connection *c = calloc(1, sizeof *c);
        c->fd = fd, c->slot = -1;
        watch(c, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static int listen_on(int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) perror("engine"), exit(1);
    return fd;
}

int main(int count, char **words) {
    if (count != 2) return fprintf(stderr, "usage: engine PORT\n"), 2;
    signal(SIGPIPE, SIG_IGN);
    poller = epoll_create1(0);
    int listener = listen_on(atoi(words[1]));
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[512];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(poller, events, 512, streams ? 1 : -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                accept_all(listener);
                continue;
            }
            int gone = 0;
            if (events[i].events & EPOLLOUT) {
                watch(c, EPOLLIN, EPOLL_CTL_MOD);
                gone = flush(c) < 0;
            }
            if (!gone && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) gone = read_request(c) < 0;
            if (gone) drop(c);
        }
        uint64_t now = now_ns();
        for (int i = streams - 1; i >= 0; i--)
            if (pump(streaming[i], now) < 0) drop(streaming[i]);
    }
}
