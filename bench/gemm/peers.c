#include "peers.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <immintrin.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct dnn {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_t prim;
	dnnl_memory_t src, wei, dst;
	dnnl_exec_arg_t args[3];
};

static const struct {
	const char *name;
	dnnl_cpu_isa_t isa;
} isas[] = {
	{"avx2", dnnl_cpu_isa_avx2},
	{"avx512_core", dnnl_cpu_isa_avx512_core},
	{"avx512_core_vnni", dnnl_cpu_isa_avx512_core_vnni},
	{"avx512_core_bf16", dnnl_cpu_isa_avx512_core_bf16},
	{"avx512_core_amx", dnnl_cpu_isa_avx512_core_amx},
};

int dnn_limit(const char *isa) {
	for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
		if (!strcmp(isa, isas[i].name)) return dnnl_set_max_cpu_isa(isas[i].isa) != dnnl_success;
	return 1;
}

const char *dnn_isa(void) {
	dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
	for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
		if (isa == isas[i].isa) return isas[i].name;
	return "another instruction set";
}

#define OK(x) \
	if ((x) != dnnl_success) goto fail

dnn *dnn_new(int m, int n, int k, int type, int packed, void *a, void *b, void *c) {
	static const dnnl_data_type_t src_type[] = {dnnl_f32, dnnl_bf16, dnnl_s8, dnnl_u8};
	static const dnnl_data_type_t wei_type[] = {dnnl_f32, dnnl_bf16, dnnl_s8, dnnl_s8};
	static const dnnl_data_type_t dst_type[] = {dnnl_f32, dnnl_f32, dnnl_s32, dnnl_s32};
	dnn *d = calloc(1, sizeof *d);
	dnnl_memory_desc_t src, wei, any, dst;
	dnnl_matmul_desc_t desc;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_dims_t ds = {m, k}, dw = {k, n}, dd = {m, n};
	OK(dnnl_engine_create(&d->engine, dnnl_cpu, 0));
	OK(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags));
	OK(dnnl_memory_desc_init_by_tag(&src, 2, ds, src_type[type], dnnl_ab));
	OK(dnnl_memory_desc_init_by_tag(&wei, 2, dw, wei_type[type], dnnl_ab));
	OK(dnnl_memory_desc_init_by_tag(&any, 2, dw, wei_type[type], packed ? dnnl_format_tag_any : dnnl_ab));
	OK(dnnl_memory_desc_init_by_tag(&dst, 2, dd, dst_type[type], dnnl_ab));
	OK(dnnl_matmul_desc_init(&desc, &src, &any, NULL, &dst));
	OK(dnnl_primitive_desc_create(&pd, &desc, NULL, d->engine, NULL));
	OK(dnnl_primitive_create(&d->prim, pd));
	OK(dnnl_memory_create(&d->src, &src, d->engine, a));
	OK(dnnl_memory_create(&d->dst, &dst, d->engine, c));
	const dnnl_memory_desc_t *want = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
	if (dnnl_memory_desc_equal(want, &wei)) {
		OK(dnnl_memory_create(&d->wei, &wei, d->engine, b));
	} else {
		dnnl_memory_t plain;
		dnnl_primitive_desc_t rpd;
		dnnl_primitive_t reorder;
		OK(dnnl_memory_create(&plain, &wei, d->engine, b));
		OK(dnnl_memory_create(&d->wei, want, d->engine, DNNL_MEMORY_ALLOCATE));
		OK(dnnl_reorder_primitive_desc_create(&rpd, &wei, d->engine, want, d->engine, NULL));
		OK(dnnl_primitive_create(&reorder, rpd));
		dnnl_exec_arg_t ra[2] = {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, d->wei}};
		OK(dnnl_primitive_execute(reorder, d->stream, 2, ra));
		OK(dnnl_stream_wait(d->stream));
		dnnl_primitive_destroy(reorder);
		dnnl_primitive_desc_destroy(rpd);
		dnnl_memory_destroy(plain);
	}
	dnnl_primitive_desc_destroy(pd);
	d->args[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, d->src};
	d->args[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, d->wei};
	d->args[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, d->dst};
	return d;
fail:
	dnn_free(d);
	return NULL;
}

int dnn_run(dnn *d) {
	if (dnnl_primitive_execute(d->prim, d->stream, 3, d->args) != dnnl_success) return 1;
	return dnnl_stream_wait(d->stream) != dnnl_success;
}

void dnn_free(dnn *d) {
	if (d->prim) dnnl_primitive_destroy(d->prim);
	if (d->src) dnnl_memory_destroy(d->src);
	if (d->wei) dnnl_memory_destroy(d->wei);
	if (d->dst) dnnl_memory_destroy(d->dst);
	if (d->stream) dnnl_stream_destroy(d->stream);
	if (d->engine) dnnl_engine_destroy(d->engine);
	free(d);
}

// oneDNN and BLIS share libgomp, whose count is kept per calling thread: it is set before every run.
void dnn_threads(int n) { omp_set_num_threads(n); }

typedef void (*sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
static sgemm_fn sgemm[2];
static void (*set_threads[2])(int);
static const char *(*core_name)(void);

int blas_open(int which) {
	void *lib;
	if (which == 0) {
		// Debian's 0.3.21 does not know recent processors and falls back to a Prescott or to AVX2; tell it the nearest that it
		// knows, whatever the environment says, which on a build machine may hold it to something common.
		if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
			setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 1);
		else if (__builtin_cpu_supports("avx2"))
			setenv("OPENBLAS_CORETYPE", __builtin_cpu_is("amd") ? "ZEN" : "HASWELL", 1);
		unsetenv("OPENBLAS_L2_SIZE");
		lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
		if (!lib) return 1;
		set_threads[0] = dlsym(lib, "openblas_set_num_threads");
		core_name = dlsym(lib, "openblas_get_corename");
	} else {
		lib = dlopen("libblis.so.4", RTLD_NOW | RTLD_LOCAL);
		if (!lib) return 1;
		set_threads[1] = dlsym(lib, "bli_thread_set_num_threads");
	}
	sgemm[which] = dlsym(lib, "cblas_sgemm");
	return sgemm[which] == NULL;
}

void blas_threads(int which, int n) {
	if (!set_threads[which]) return;
	if (which == 1)
		((void (*)(int64_t))set_threads[1])(n); // BLIS's dim_t is 64 bits wide
	else
		set_threads[0](n);
}

void blas_sgemm(int which, int m, int n, int k, const float *a, const float *b, float *c) {
	sgemm[which](101, 111, 111, m, n, k, 1, a, k, b, n, 0, c, n);
}

const char *blas_core(int which) { return which == 0 && core_name ? core_name() : ""; }

void *read_memory(int64_t n) {
	const int64_t huge = 2 << 20;
	void *p = aligned_alloc(huge, (n + huge - 1) / huge * huge);
	if (!p) abort();
	madvise(p, (n + huge - 1) / huge * huge, MADV_HUGEPAGE);
	memset(p, 1, n);
	return p;
}

// Streams of whole lines. Which number of them reads fastest, and whether asking ahead helps, depends on the processor and on who
// else uses the memory.
__attribute__((target("avx512f"))) static int64_t read512(const char *p, int64_t n, int64_t streams, int64_t ahead) {
	__m512i s[4] = {0};
	int64_t part = n / streams / 4096 * 4096;
	for (int64_t i = 0; i < part; i += 256)
		for (int64_t q = 0; q < streams; q++) {
			const char *x = p + q * part + i;
			for (int64_t v = 0; ahead && v < 4; v++) _mm_prefetch(x + ahead + 64 * v, _MM_HINT_T0);
			for (int64_t v = 0; v < 4; v++) s[v] = _mm512_xor_si512(s[v], _mm512_loadu_si512(x + 64 * v));
		}
	return _mm512_reduce_add_epi64(_mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3])));
}

__attribute__((target("avx2"))) static int64_t read256(const char *p, int64_t n, int64_t streams, int64_t ahead) {
	__m256i s[4] = {0};
	int64_t part = n / streams / 4096 * 4096;
	for (int64_t i = 0; i < part; i += 128)
		for (int64_t q = 0; q < streams; q++) {
			const char *x = p + q * part + i;
			for (int64_t v = 0; ahead && v < 2; v++) _mm_prefetch(x + ahead + 64 * v, _MM_HINT_T0);
			for (int64_t v = 0; v < 4; v++) s[v] = _mm256_xor_si256(s[v], _mm256_loadu_si256((const void *)(x + 32 * v)));
		}
	return _mm256_extract_epi64(_mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3])), 0);
}

int64_t read_all(const void *p, int64_t n, int pattern) {
	static volatile int64_t sink;
	int64_t streams = pattern ? 4 : 2, ahead = pattern ? 2048 : 0;
	return sink = __builtin_cpu_supports("avx512f") ? read512(p, n, streams, ahead) : read256(p, n, streams, ahead);
}
