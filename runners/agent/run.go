package agent

import "context"

// Run does one dispatch from start to end and answers how it ended. It returns when no process of the program is
// left and everything that could be written is written. Cancelling ctx is the notice to leave (SIGTERM): the program
// is asked for a last milestone and the lease is yielded within the claim's grace. Run uses the process's signals,
// environment and working folder not at all; several runs may live in one process.
func Run(ctx context.Context, c Config) Exit {
	return Exit{Code: CodeInternal, Class: "internal", Text: "this build has no worker yet"}
}
