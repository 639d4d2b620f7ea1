package suitetest

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

// suite is the compiled conformance suite.
var suite = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "osb-suite-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(directory, "osb.test")
	compile := exec.Command("go", "test", "-c", "-o", binary, "..")
	compile.Stderr = os.Stderr
	return binary, compile.Run()
})

func TestMain(m *testing.M) {
	flag.Parse()
	// A run is mostly waiting for the fake.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if binary, err := suite(); err == nil {
		_ = os.RemoveAll(filepath.Dir(binary))
	}
	os.Exit(code)
}

// run lets the suite, or what the label filter leaves of it, check the broker.
func run(t *testing.T, broker http.Handler, filter string, settings ...string) types.SpecReports {
	t.Helper()
	binary, err := suite()
	if err != nil {
		t.Fatalf("compile the suite: %v", err)
	}
	server := httptest.NewServer(broker)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "report.json")
	check := exec.CommandContext(t.Context(), binary, "--ginkgo.json-report="+file, "--ginkgo.no-color", "--ginkgo.label-filter="+filter)
	check.Env = append(os.Environ(),
		"OSB_STRICT=1", "OSB_URL="+server.URL, "OSB_TIMEOUT=10s", "OSB_POLLING_INTERVAL=5ms",
		"OSB_USERNAME="+FirstUsername, "OSB_PASSWORD="+FirstPassword, "OSB_PREVIOUS_PASSWORD="+FirstPreviousPassword,
		"OSB_TOKEN="+FirstToken, "OSB_PLATFORM2_USERNAME="+SecondUsername, "OSB_PLATFORM2_PASSWORD="+SecondPassword,
		`OSB_OTHER_PARAMETERS={"size":2}`, `OSB_PENDING_PARAMETERS={"pending":true}`, `OSB_FAILING_UPDATE_PARAMETERS={"fails":true}`,
	)
	check.Env = append(check.Env, settings...)
	output, runErr := check.CombinedOutput()
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the suite's report (%v): %v\n%s", runErr, err, output)
	}
	var reports []types.Report
	if err := json.Unmarshal(document, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("read the suite's report: %v", err)
	}
	return reports[0].SpecReports.WithLeafNodeType(types.NodeTypeIt)
}
