module github.com/tessera-go/tessera/backends/cpu/_encode

go 1.26.0
