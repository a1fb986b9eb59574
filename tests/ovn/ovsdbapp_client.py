"""ovsdbapp, the library of OpenStack, on a northbound database.

    ovsdbapp_client.py REMOTE [KEY CERTIFICATE CA]

Makes switches, ports, ACLs and an address set, changes and removes some, and
checks what a second replica sees. Run in an environment that has the packages
`ovs` and `ovsdbapp`.
"""

import sys

from ovs.stream import Stream
from ovsdbapp.backend.ovs_idl import connection
from ovsdbapp.schema.ovn_northbound import impl_idl


def main():
    remote, *tls = sys.argv[1:]
    if tls:
        key, certificate, ca = tls
        Stream.ssl_set_private_key_file(key)
        Stream.ssl_set_certificate_file(certificate)
        Stream.ssl_set_ca_cert_file(ca)
    api = connect(remote)
    with api.transaction(check_error=True) as txn:
        txn.add(api.ls_add("sw"))
        for number in range(20):
            txn.add(api.lsp_add("sw", f"p{number}"))
        txn.add(api.address_set_add("as", ["192.0.2.1", "192.0.2.2"]))
    with api.transaction(check_error=True) as txn:
        for number in range(10):
            txn.add(api.lsp_set_addresses(f"p{number}", [f"0a:00:00:00:00:{number:02x}"]))
            txn.add(api.acl_add("sw", "to-lport", 1000 + number, f"tcp.dst == {number}", "drop"))
        txn.add(api.address_set_add_addresses("as", ["192.0.2.3"]))
        txn.add(api.lsp_del("p19"))
    # A conflict is an error of the transaction, told as such.
    try:
        api.ls_add("sw").execute(check_error=True)
        sys.exit("a second switch of the same name was taken")
    except RuntimeError:
        pass
    other = connect(remote)
    ports = sorted(port.name for port in other.lsp_list("sw").execute(check_error=True))
    expect(ports, sorted(f"p{number}" for number in range(19)))
    expect(len(other.acl_list("sw").execute(check_error=True)), 10)
    addresses = other.address_set_get("as").execute(check_error=True).addresses
    expect(sorted(addresses), ["192.0.2.1", "192.0.2.2", "192.0.2.3"])
    api.ls_del("sw").execute(check_error=True)
    print("ok")


def connect(remote):
    idl = connection.OvsdbIdl.from_server(remote, "OVN_Northbound")
    return impl_idl.OvnNbApiIdlImpl(connection.Connection(idl, timeout=60))


def expect(found, expected):
    if found != expected:
        sys.exit(f"{found!r} instead of {expected!r}")


main()
