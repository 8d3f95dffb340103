//go:build llama

package llamarpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// completion asks a server for what the tests' rounds ask for.
func completion(ctx context.Context, at string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+"/completion", bytes.NewBufferString(`{"prompt":"hello","n_predict":16,"temperature":0,"cache_prompt":false}`))
	if err != nil {
		return "", err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %v", res.Status, err)
	}
	var said struct{ Content string }
	err = json.Unmarshal(b, &said)
	return said.Content, err
}

// healthy is a server's own word.
func healthy(t *testing.T, at string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Log(err)
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}
