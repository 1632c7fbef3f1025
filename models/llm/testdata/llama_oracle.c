// Prints what llama.cpp computes for a GGUF file: after each of some tokens the five most probable next ones, or, for an encoder, the
// pooled vector.
//
//   cc -O1 -I llama.cpp/include -I llama.cpp/ggml/include -o oracle llama_oracle.c -ldl -lm
//   for c in $(mkmodel -cases); do
//     mkmodel -case $c -o $c.gguf
//     echo "\"$c\": $(./oracle libggml.so libllama.so $c.gguf FOLDER-OF-LIBRARIES $(seq 11 17 334)),"
//   done    # in braces: oracle.json
//
// The libraries are those of the npm package @node-llama-cpp/linux-x64 3.21.1; the headers lie in node-llama-cpp's gitRelease.bundle.
// Keys and values are kept in f32, so that rounding of the cache is no part of the figures.
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

static void quiet(enum ggml_log_level level, const char *text, void *user) { if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr); }

int main(int argc, char **argv) {
  void *g = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL), *so = dlopen(argv[2], RTLD_NOW);
  if (!g || !so) { fprintf(stderr, "%s\n", dlerror()); return 1; }
#define F(name) typeof(&name) p_##name = (typeof(&name))dlsym(so, #name)
#define G(name) typeof(&name) p_##name = (typeof(&name))dlsym(g, #name)
  G(ggml_backend_load_all_from_path);
  F(llama_log_set); F(llama_model_default_params); F(llama_model_load_from_file); F(llama_context_default_params); F(llama_init_from_model);
  F(llama_decode); F(llama_encode); F(llama_get_logits_ith); F(llama_get_embeddings_seq); F(llama_model_get_vocab); F(llama_vocab_n_tokens);
  F(llama_model_n_embd); F(llama_model_has_encoder); F(llama_batch_init);
  p_llama_log_set(quiet, 0);
  p_ggml_backend_load_all_from_path(argv[4]);
  struct llama_model_params mp = p_llama_model_default_params();
  struct llama_model *m = p_llama_model_load_from_file(argv[3], mp);
  if (!m) return 1;
  int n = argc - 5;
  struct llama_context_params cp = p_llama_context_default_params();
  cp.n_ctx = 0;
  cp.type_k = cp.type_v = GGML_TYPE_F32;
  cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  cp.n_threads = cp.n_threads_batch = 1;
  int encoder = strstr(argv[3], "bert") != 0;
  cp.embeddings = encoder;
  struct llama_context *c = p_llama_init_from_model(m, cp);
  if (!c) return 1;
  struct llama_batch b = p_llama_batch_init(n, 0, 1);
  b.n_tokens = n;
  for (int i = 0; i < n; i++) {
    b.token[i] = atoi(argv[5 + i]);
    b.pos[i] = i;
    b.n_seq_id[i] = 1;
    b.seq_id[i][0] = 0;
    b.logits[i] = 1;
  }
  if (p_llama_decode(c, b)) return 1;
  if (encoder) {
    float *e = p_llama_get_embeddings_seq(c, 0);
    for (int i = 0; i < p_llama_model_n_embd(m); i++) printf("%s%.6f", i ? "," : "[", e[i]);
    printf("]\n");
    return 0;
  }
  int v = p_llama_vocab_n_tokens(p_llama_model_get_vocab(m));
  printf("[");
  for (int i = 0; i < n; i++) {
    float *l = p_llama_get_logits_ith(c, i);
    double most = l[0], sum = 0;
    for (int j = 0; j < v; j++) if (l[j] > most) most = l[j];
    for (int j = 0; j < v; j++) sum += exp(l[j] - most);
    printf("%s[", i ? "," : "");
    for (int k = 0; k < 5; k++) {
      int best = 0;
      for (int j = 1; j < v; j++) if (l[j] > l[best]) best = j;
      printf("%s[%d,%.6f]", k ? "," : "", best, exp(l[best] - most) / sum);
      l[best] = -INFINITY;
    }
    printf("]");
  }
  printf("]\n");
  return 0;
}
