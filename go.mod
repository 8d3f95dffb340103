module github.com/headway-run/headway

go 1.26.0

require (
	github.com/ProtonMail/go-crypto v1.1.6 // OpenPGP signatures of commits; go-git brings it anyway
	github.com/VictoriaMetrics/metrics v1.45.0 // metrics in the Prometheus text format, without globals
	github.com/anishathalye/porcupine v1.3.1 // tests: linearizability of compare-and-swap histories
	github.com/aws/aws-sdk-go-v2 v1.48.0 // S3: signing and types
	github.com/aws/aws-sdk-go-v2/config v1.33.18 // the credential chain, in cmd/headway alone
	github.com/aws/aws-sdk-go-v2/service/s3 v1.114.10 // S3: the client
	github.com/aws/smithy-go v1.28.9 // S3: errors by the service's own codes
	github.com/go-git/go-billy/v5 v5.9.2 // file systems that go-git reads through
	github.com/go-git/go-git/v5 v5.19.3 // Git without a git binary
	github.com/google/go-cmp v0.7.0 // the field diff in plan/diff.go, and tests
	github.com/hiddeco/sshsig v0.2.0 // SSH signatures of commits, which go-git does not verify
	github.com/johannesboyne/gofakes3 v1.2.0 // tests: an S3 server in the process
	github.com/klauspost/compress v1.20.4 // zstd of code bundles
	github.com/lmittmann/tint v1.2.1 // logs on a terminal
	github.com/rogpeppe/go-internal v1.16.0 // tests: scripts of the command line
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // tests: the schema refuses what the loader refuses
	github.com/secure-systems-lab/go-securesystemslib v0.11.1 // DSSE envelopes of the lane's attestations: the dsse package alone
	github.com/spf13/cobra v1.10.2 // the command tree; keeps dead code elimination
	go.uber.org/goleak v1.3.0 // tests: no goroutine stays behind
	golang.org/x/crypto v0.56.0 // SSH public keys of allowed signers; tests: an ssh server for Git
	golang.org/x/term v0.48.0 // is this a terminal
	gonum.org/v1/gonum v0.17.0 // quantiles of Student's t
	gopkg.in/yaml.v3 v3.0.1 // the YAML parser, nodes only, in plan/load.go
	pgregory.net/rapid v1.3.0 // tests: properties
)

require (
	dario.cat/mergo v1.0.0 // indirect
	github.com/Microsoft/go-winio v0.6.2 // indirect
	github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream v1.7.27 // indirect
	github.com/aws/aws-sdk-go-v2/credentials v1.21.0 // indirect
	github.com/aws/aws-sdk-go-v2/feature/ec2/imds v1.20.9 // indirect
	github.com/aws/aws-sdk-go-v2/internal/configsources v1.5.12 // indirect
	github.com/aws/aws-sdk-go-v2/internal/endpoints/v2 v2.8.12 // indirect
	github.com/aws/aws-sdk-go-v2/internal/v4a v1.5.12 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/accept-encoding v1.13.25 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/checksum v1.11.13 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/presigned-url v1.14.12 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/s3shared v1.20.12 // indirect
	github.com/aws/aws-sdk-go-v2/service/signin v1.13.1 // indirect
	github.com/aws/aws-sdk-go-v2/service/sso v1.39.5 // indirect
	github.com/aws/aws-sdk-go-v2/service/ssooidc v1.44.5 // indirect
	github.com/aws/aws-sdk-go-v2/service/sts v1.52.0 // indirect
	github.com/cloudflare/circl v1.6.3 // indirect
	github.com/cyphar/filepath-securejoin v0.6.1 // indirect
	github.com/emirpasic/gods v1.18.1 // indirect
	github.com/go-git/gcfg v1.5.1-0.20230307220236-3a3c6141e376 // indirect
	github.com/golang/groupcache v0.0.0-20241129210726-2c02b8208cf8 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jbenet/go-context v0.0.0-20150711004518-d14ea06fba99 // indirect
	github.com/kevinburke/ssh_config v1.2.0 // indirect
	github.com/pjbgf/sha1cd v0.7.0 // indirect
	github.com/ryszard/goskiplist v0.0.0-20150312221310-2dfbae5fcf46 // indirect
	github.com/sergi/go-diff v1.3.2-0.20230802210424-5b0b94c5c0d3 // indirect
	github.com/skeema/knownhosts v1.3.1 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/valyala/fastrand v1.1.0 // indirect
	github.com/valyala/histogram v1.2.0 // indirect
	github.com/xanzy/ssh-agent v0.3.3 // indirect
	go.shabbyrobe.org/gocovmerge v0.0.0-20230507111327-fa4f82cfbf4d // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	golang.org/x/tools v0.48.0 // indirect
	gopkg.in/warnings.v0 v0.1.2 // indirect
)
