// What llama.cpp makes of a file and a text, through its C interface.
//
//	peer LIBRARIES quantize IN OUT FTYPE THREADS    writes a file of a type (its number in llama.h)
//	peer LIBRARIES perplexity FILE IDS CONTEXT THREADS
//
// IDS is a file of token numbers. They are cut into windows of CONTEXT, each is evaluated from an empty cache with keys and values in f32, and
// every token but the first of a window is scored; the sum of the negative logarithms and their number are printed.
#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

static void quiet(enum ggml_log_level level, const char *text, void *user) {
  if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
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

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  library(argv[1], "libggml-base.so");
  void *ggml = library(argv[1], "libggml.v"), *so = library(argv[1], "libllama.v");
#define F(lib, name) typeof(&name) p_##name = (typeof(&name))dlsym(lib, #name); if (!p_##name) { fprintf(stderr, "no %s\n", #name); return 1; }
  F(ggml, ggml_backend_load_all_from_path)
  F(so, llama_log_set) F(so, llama_model_default_params) F(so, llama_model_load_from_file) F(so, llama_context_default_params)
  F(so, llama_init_from_model) F(so, llama_decode) F(so, llama_get_logits_ith) F(so, llama_get_memory) F(so, llama_memory_clear)
  F(so, llama_batch_init) F(so, llama_synchronize) F(so, llama_model_get_vocab) F(so, llama_vocab_n_tokens)
  F(so, llama_model_quantize) F(so, llama_model_quantize_default_params)
  p_llama_log_set(quiet, 0);
  p_ggml_backend_load_all_from_path(argv[1]);
  if (!strcmp(argv[2], "quantize") && argc == 7) {
    struct llama_model_quantize_params q = p_llama_model_quantize_default_params();
    q.ftype = atoi(argv[5]);
    q.nthread = atoi(argv[6]);
    return p_llama_model_quantize(argv[3], argv[4], &q) != 0;
  }
  if (strcmp(argv[2], "perplexity") || argc != 7) { fprintf(stderr, "peer: see the source for usage\n"); return 2; }
  int context = atoi(argv[5]);
  struct llama_model *model = p_llama_model_load_from_file(argv[3], p_llama_model_default_params());
  if (!model) return 1;
  struct llama_context_params cp = p_llama_context_default_params();
  cp.n_ctx = cp.n_batch = cp.n_ubatch = context;
  cp.type_k = cp.type_v = GGML_TYPE_F32;
  cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  cp.n_threads = cp.n_threads_batch = atoi(argv[6]);
  struct llama_context *ctx = p_llama_init_from_model(model, cp);
  if (!ctx) return 1;
  int vocab = p_llama_vocab_n_tokens(p_llama_model_get_vocab(model));
  FILE *f = fopen(argv[4], "r");
  if (!f) { perror(argv[4]); return 1; }
  struct llama_batch b = p_llama_batch_init(context, 0, 1);
  double nll = 0;
  long scored = 0;
  for (;;) {
    int n = 0;
    while (n < context && fscanf(f, "%d", &b.token[n]) == 1) {
      b.pos[n] = n; b.n_seq_id[n] = 1; b.seq_id[n][0] = 0; b.logits[n] = 1;
      n++;
    }
    if (n < 2) break;
    b.n_tokens = n;
    p_llama_memory_clear(p_llama_get_memory(ctx), true);
    if (p_llama_decode(ctx, b)) { fprintf(stderr, "llama_decode failed\n"); return 1; }
    p_llama_synchronize(ctx);
    for (int i = 0; i + 1 < n; i++) {
      float *l = p_llama_get_logits_ith(ctx, i);
      double top = l[0], sum = 0;
      for (int j = 1; j < vocab; j++) if (l[j] > top) top = l[j];
      for (int j = 0; j < vocab; j++) sum += exp(l[j] - top);
      nll += log(sum) + top - l[b.token[i + 1]];
      scored++;
    }
    if (n < context) break;
  }
  printf("%.9g %ld\n", nll, scored);
  return 0;
}
