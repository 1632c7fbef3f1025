module github.com/tessera-go/tessera/backends/cpu/gemm/ordered/_gen

go 1.26.0
