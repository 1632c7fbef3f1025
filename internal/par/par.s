// This file is empty: it lets par.go declare a function whose body is in the runtime.
