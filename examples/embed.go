// Package examples holds the example plan repositories as files inside the binary, so that the demo needs nothing but
// itself. The programs in them are what users would write; Go code here is not.
package examples

import "embed"

// Digits is the plan repository below digits/ (headway.yaml, plans/, seeds/, digits/, README.md), without its tests
// and its Go twin. Use fs.Sub(Digits, "digits") for the root of the repository.
//
//go:embed digits/headway.yaml digits/README.md digits/plans/*.yaml digits/seeds/*.yaml digits/digits/*.py digits/digits/*.gz
var Digits embed.FS

// Hello is the plan repository that `headway init` makes, below hello/.
//
//go:embed hello
var Hello embed.FS

// Workflow says on every pull request what it would do; `headway init` writes it. It is needed once per repository and holds
// no secret.
//
//go:embed ci/github.yml
var Workflow string
