//go:build !unix

package par

import "time"

func processorTime() (time.Duration, bool) { return 0, false }
