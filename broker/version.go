package broker

import (
	"net/http"
	"strconv"
	"strings"
)

// version is the minor version of the OSB API that a request asks for.
type version int

// Versions with different behaviour.
const (
	v13    version = 13
	v14    version = 14
	v15    version = 15
	v16    version = 16
	v17    version = 17
	oldest         = v13
	newest         = v17
)

// parseVersion parses X-Broker-API-Version. A later 2.x is answered as 2.17, which is
// compatible by the specification's own rules ("Change Policy").
func parseVersion(header string) (version, error) {
	unsupported := &Error{Status: http.StatusPreconditionFailed, Code: codeUnsupportedVersion,
		Description: headerVersion + ": want 2.13 to 2.17."}
	major, minor, found := strings.Cut(header, ".")
	if !found || major != "2" || len(minor) > 4 {
		return 0, unsupported
	}
	number, err := strconv.ParseUint(minor, 10, 16)
	if err != nil || number < uint64(oldest) {
		return 0, unsupported
	}
	return min(version(number), newest), nil
}
