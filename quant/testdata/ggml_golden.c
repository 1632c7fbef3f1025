// Makes ggml.txt: what GGML's quantizers and dequantizers give for inputs that the test makes again from the same generator.
//
//   cc -O1 -o /tmp/golden ggml_golden.c -ldl
//   /tmp/golden libggml-base.so model.gguf > ggml.txt
//
// libggml-base.so is that of the npm package @node-llama-cpp/linux-x64 3.21.1; model.gguf is shared/data/models/tolstoy-3m.gguf.
// Only public entry points are used, declared here so that no header is needed.
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct traits { // struct ggml_type_traits
  const char *type_name; int64_t blck_size, blck_size_interleave; size_t type_size; char is_quantized;
  void (*to_float)(const void *, float *, int64_t);
  void (*from_float_ref)(const float *, void *, int64_t);
};

static uint64_t state;
static uint64_t next(void) { // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
static uint32_t fnv(uint32_t h, const void *p, size_t n) {
  for (const uint8_t *b = p; n--; b++) h = (h ^ *b) * 16777619u;
  return h;
}

int main(int argc, char **argv) {
  void *so = dlopen(argv[1], RTLD_NOW);
  if (!so) { fprintf(stderr, "%s\n", dlerror()); return 1; }
  const struct traits *(*get)(int) = dlsym(so, "ggml_get_type_traits");
  size_t (*quantize)(int, const float *, void *, int64_t, int64_t, int64_t, const float *) = dlsym(so, "ggml_quantize_chunk");
  struct { const char *name; int id, scales[2]; } types[] = {
    {"q4_0", 2, {0, -1}}, {"q4_1", 3, {0, 2}}, {"q5_0", 6, {0, -1}}, {"q5_1", 7, {0, 2}}, {"q8_0", 8, {0, -1}},
    {"q2_k", 10, {80, 82}}, {"q3_k", 11, {108, -1}}, {"q4_k", 12, {0, 2}}, {"q5_k", 13, {0, 2}}, {"q6_k", 14, {208, -1}},
    {"iq4_nl", 20, {0, -1}}, {"mxfp4", 39, {-1, -1}}};
  enum { blocks = 1000 };
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    const struct traits *tr = get(types[t].id);
    int bs = tr->blck_size, ts = tr->type_size, n = blocks * bs;
    float *x = malloc(n * 4), *y = malloc(n * 4);
    uint8_t *q = malloc(blocks * ts);

    // Random bits, with finite scales of moderate size: what a decoder must take.
    state = 1000 + types[t].id;
    for (int i = 0; i < blocks * ts; i++) q[i] = next() >> 56;
    for (int b = 0; b < blocks; b++) {
      for (int s = 0; s < 2; s++)
        if (types[t].scales[s] >= 0) { // exponent below the largest
          uint8_t *hi = q + b * ts + types[t].scales[s] + 1;
          if ((*hi & 0x7c) == 0x7c) *hi &= ~0x40;
        }
      if (types[t].id == 39 && q[b * ts] > 250) q[b * ts] = 120;
    }
    tr->to_float(q, y, n);
    printf("%s decode %08x\n", types[t].name, fnv(2166136261u, y, n * 4));

    // Numbers, roughly normal, of a magnitude that changes from block to block.
    state = 2000 + types[t].id;
    for (int i = 0; i < n; i++) {
      uint64_t r = next();
      int32_t sum = (int32_t)(r & 0xffff) + (int32_t)(r >> 16 & 0xffff) + (int32_t)(r >> 32 & 0xffff) + (int32_t)(r >> 48) - 131070;
      x[i] = ldexpf((float)sum, -16 - i / bs % 12);
    }
    quantize(types[t].id, x, q, 0, blocks, bs, NULL);
    tr->to_float(q, y, n);
    double err = 0;
    for (int i = 0; i < n; i++) {
      double w = ldexp(1, i / bs % 12); // every block counts the same
      err += w * w * ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    }
    printf("%s encode %08x decoded %08x squared_error %.17g\n", types[t].name, fnv(2166136261u, q, blocks * ts), fnv(2166136261u, y, n * 4), err);
    printf("%s blocks ", types[t].name); // the first few in full
    for (int i = 0; i < 12 * ts; i++) printf("%02x", q[i]);
    printf("\n");
  }

  // Squared error on the real weights of one layer.
  struct { char no_alloc; void **ctx; } params = {0, 0};
  void *ggml = 0;
  params.ctx = &ggml;
  void *(*open)(const char *, typeof(params)) = dlsym(so, "gguf_init_from_file");
  void *gguf = open(argv[2], params);
  int64_t (*count)(void *) = dlsym(so, "gguf_get_n_tensors");
  const char *(*name)(void *, int64_t) = dlsym(so, "gguf_get_tensor_name");
  void *(*tensor)(void *, const char *) = dlsym(so, "ggml_get_tensor");
  float *(*data)(void *) = dlsym(so, "ggml_get_data_f32");
  int64_t (*elems)(void *) = dlsym(so, "ggml_nelements");
  int (*dims)(void *) = dlsym(so, "ggml_n_dims");
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    double err = 0;
    for (int64_t i = 0; i < count(gguf); i++) {
      void *g = tensor(ggml, name(gguf, i));
      if (dims(g) < 2 || strncmp(name(gguf, i), "blk.1.", 6)) continue;
      int64_t n = elems(g), bs = 256; // all rows of this model are whole super-blocks
      uint8_t *q = malloc(n * 2);
      float *y = malloc(n * 4);
      quantize(types[t].id, data(g), q, 0, n / bs, bs, NULL);
      get(types[t].id)->to_float(q, y, n);
      for (int64_t j = 0; j < n; j++) err += ((double)data(g)[j] - y[j]) * ((double)data(g)[j] - y[j]);
      free(q), free(y);
    }
    printf("%s weights squared_error %.17g\n", types[t].name, err);
  }
  return 0;
}
