module github.com/tessera-go/tessera/backends/cpu/qgemm/_gen

go 1.26
