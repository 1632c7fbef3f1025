// Measures llama.cpp through its C interface and prints one JSON document.
//
//	peer LIBRARIES model.gguf THREADS PROMPT DECODE ROUNDS
//
// LIBRARIES is the folder of libllama.so and libggml-*.so, of which ggml chooses the fastest that the processor runs. Everything
// else is the library's default: mapped weights, repacking, keys and values in f16, flash attention where it helps.
// Times are in seconds, a number a round: prefill is one batch of PROMPT tokens in an empty cache, decode is DECODE single tokens
// behind it. first is the time from the start of the process to the logits of a prompt of one token, load that of
// loading model and context alone.
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
  if (level >= GGML_LOG_LEVEL_ERROR || getenv("PEER_VERBOSE")) fputs(text, stderr);
}

// library opens the file in a folder whose name begins with a prefix: versions are part of the names.
static void *library(const char *dir, const char *prefix) {
  DIR *d = opendir(dir);
  if (!d) { perror(dir); exit(1); }
  char path[4096];
  for (struct dirent *e; (e = readdir(d));)
    if (!strncmp(e->d_name, prefix, strlen(prefix))) {
      snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
      void *h = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
      if (!h) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
      closedir(d);
      return h;
    }
  fprintf(stderr, "%s has no %s*\n", dir, prefix);
  exit(1);
}

static void list(const char *name, double *x, int n) {
  printf(",\"%s\":[", name);
  for (int i = 0; i < n; i++) printf("%s%.6f", i ? "," : "", x[i]);
  printf("]");
}

// peak_memory is the most resident memory of this process in bytes. What getrusage reports begins with the peak of the process that
// started this one.
static long peak_memory(void) {
  char line[256];
  long kb = 0;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "VmHWM: %ld", &kb) == 1) break;
  if (f) fclose(f);
  return kb * 1024;
}

int main(int argc, char **argv) {
  double start = now();
  const char *started = getenv("LLM_BENCH_START"); // when the process was started, of the real-time clock
  if (started) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    start -= t.tv_sec + t.tv_nsec * 1e-9 - strtoll(started, 0, 10) * 1e-9;
  }
  if (argc != 7) { fprintf(stderr, "usage: peer LIBRARIES model.gguf THREADS PROMPT DECODE ROUNDS\n"); return 2; }
  int threads = atoi(argv[3]), prompt = atoi(argv[4]), decode = atoi(argv[5]), rounds = atoi(argv[6]);
  void *base = library(argv[1], "libggml-base.so"), *ggml = library(argv[1], "libggml.v"), *so = library(argv[1], "libllama.v");
#define F(lib, name) typeof(&name) p_##name = (typeof(&name))dlsym(lib, #name); if (!p_##name) { fprintf(stderr, "no %s\n", #name); return 1; }
  F(ggml, ggml_backend_load_all_from_path)
  F(so, llama_log_set) F(so, llama_model_default_params) F(so, llama_model_load_from_file) F(so, llama_context_default_params)
  F(so, llama_init_from_model) F(so, llama_decode) F(so, llama_get_logits_ith) F(so, llama_get_memory) F(so, llama_memory_clear)
  F(so, llama_memory_seq_rm) F(so, llama_batch_init) F(so, llama_synchronize)
  (void)base;
  p_llama_log_set(quiet, 0);
  p_ggml_backend_load_all_from_path(argv[1]);
  struct llama_model_params mp = p_llama_model_default_params();
  struct llama_model *model = p_llama_model_load_from_file(argv[2], mp);
  if (!model) return 1;
  struct llama_context_params cp = p_llama_context_default_params();
  cp.n_ctx = prompt + decode;
  cp.n_batch = cp.n_ubatch = prompt > 512 ? prompt : 512;
  cp.n_threads = cp.n_threads_batch = threads;
  struct llama_context *ctx = p_llama_init_from_model(model, cp);
  if (!ctx) return 1;
  double load = now() - start;

  struct llama_batch b = p_llama_batch_init(prompt, 0, 1);
#define EVAL(n, at) \
  for (int i = 0; i < (n); i++) { b.token[i] = 300 + ((at) + i) * 37 % 1000; b.pos[i] = (at) + i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = i + 1 == (n); } \
  b.n_tokens = (n); \
  if (p_llama_decode(ctx, b)) { fprintf(stderr, "llama_decode failed\n"); return 1; } \
  p_llama_synchronize(ctx); \
  p_llama_get_logits_ith(ctx, -1);

  EVAL(1, 0)
  double first = now() - start;
  double *fill = malloc(rounds * sizeof *fill), *step = malloc(rounds * sizeof *step);
  for (int r = 0; r < rounds; r++) {
    p_llama_memory_clear(p_llama_get_memory(ctx), true);
    double t = now();
    EVAL(prompt, 0)
    fill[r] = now() - t;
    t = now();
    for (int d = 0; d < decode; d++) { EVAL(1, prompt + d) }
    step[r] = now() - t;
  }
  printf("{\"load\":%.6f,\"first\":%.6f", load, first);
  list("prefill", fill, rounds);
  list("decode", step, rounds);
  printf(",\"peak_rss\":%ld}\n", peak_memory());
  return 0;
}
