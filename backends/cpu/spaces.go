package cpu

import "github.com/tessera-go/tessera/backends/cpu/gemm"

// spaces are workspaces of products that run side by side, one a worker. Whatever runs one after the other may use the same, and keeps no
// packed operands for each node.
type spaces []*gemm.Workspace

// of returns the workspace of a worker.
func (s *spaces) of(worker int) (*gemm.Workspace, error) {
	for len(*s) <= worker {
		w, err := gemm.NewWorkspace(0)
		if err != nil {
			return nil, err
		}
		*s = append(*s, w)
	}
	return (*s)[worker], nil
}
