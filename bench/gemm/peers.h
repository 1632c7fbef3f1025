// Peers of the benchmark in C: oneDNN linked, the two BLAS loaded by hand because their symbols have the same names.
#include <stdint.h>

typedef struct dnn dnn;

enum { DNN_F32, DNN_BF16, DNN_S8, DNN_U8 };

// dnn_new prepares C[m,n] = A[m,k] B[k,n], all row-major; packed lets oneDNN choose the layout of B and reorders it once.
dnn *dnn_new(int m, int n, int k, int type, int packed, void *a, void *b, void *c);
int dnn_run(dnn *);
void dnn_free(dnn *);
void dnn_threads(int n);

// dnn_limit holds oneDNN to an instruction set, before its first product; 0 is success. dnn_isa names the one that it uses.
int dnn_limit(const char *isa);
const char *dnn_isa(void);

// blas_open loads a BLAS; which is 0 for OpenBLAS, 1 for BLIS. Returns 0 when it is there.
int blas_open(int which);
void blas_threads(int which, int n);
void blas_sgemm(int which, int m, int n, int k, const float *a, const float *b, float *c);
const char *blas_core(int which);

// read_memory allocates n bytes in huge pages. read_all reads them in one of two patterns and returns something of them.
void *read_memory(int64_t n);
int64_t read_all(const void *p, int64_t n, int pattern);
