module github.com/headway-run/headway/.ci/s3server

go 1.26.0

require github.com/versity/versitygw v1.8.0 // indirect
