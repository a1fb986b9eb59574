"""The network of the scenario, as batches of ovn-nbctl, ovn-sbctl and ovs-vsctl commands.

Everything that northd would otherwise choose by chance (tunnel keys, MAC
addresses of its own) is asked for explicitly, so that two runs differ in
nothing but row UUIDs and times.
"""

ROUTERS = 2
SWITCHES = 20
PORTS_PER_SWITCH = 20
ADDRESS_SETS = 4
PORT_GROUPS = 6
LOAD_BALANCERS = 12
CHASSIS = 3


def switch(number):
    return f"sw{number:02}"


def port(switch_number, number):
    return f"sw{switch_number:02}-p{number:02}"


def mac(kind, switch_number, number):
    return f"0a:00:{kind:02x}:{switch_number:02x}:00:{number:02x}"


def address(switch_number, number):
    return f"10.{switch_number}.0.{number + 10}"


def northbound():
    """Batches that build the northbound content; each is one invocation."""
    yield _globals()
    yield _routers()
    for number in range(SWITCHES):
        yield _switch(number)
    yield _address_sets()
    for number in range(PORT_GROUPS):
        yield _port_group(number)
    yield _acls()
    yield _load_balancers()
    yield _services()


def _globals():
    return [
        ["set", "NB_Global", ".", "options:mac_prefix=0a:00:ff",
         "options:svc_monitor_mac=0a:00:fe:00:00:01", "name=region-1"],
    ]


def _routers():
    commands = []
    for number in range(ROUTERS):
        name = f"r{number}"
        commands += [
            ["lr-add", name],
            ["set", "Logical_Router", name, f"options:requested-tnl-key={100 + number}"],
        ]
    commands += [
        ["lrp-add", "r0", "r0-r1", "0a:00:0a:00:00:01", "172.16.0.1/30", "peer=r1-r0"],
        ["lrp-add", "r1", "r1-r0", "0a:00:0a:00:00:02", "172.16.0.2/30", "peer=r0-r1"],
        ["lr-route-add", "r0", "10.1.0.0/16", "172.16.0.2"],
        ["lr-route-add", "r1", "10.0.0.0/16", "172.16.0.1"],
        ["--policy=src-ip", "lr-route-add", "r1", "192.168.7.0/24", "172.16.0.1"],
    ]
    for router, other, key in (("r0", "r1", 1), ("r1", "r0", 1)):
        name = f"{router}-{other}"
        commands.append(["set", "Logical_Router_Port", name, f"options:requested-tnl-key={key}"])
    return commands


def _switch(number):
    """A switch with its ports and its leg to a router."""
    name, router = switch(number), f"r{number % ROUTERS}"
    leg, back = f"{router}-{name}", f"{name}-{router}"
    commands = [
        ["ls-add", name],
        ["set", "Logical_Switch", name, f"other_config:requested-tnl-key={10 + number}",
         f"other_config:subnet=10.{number}.0.0/24"],
        ["lrp-add", router, leg, mac(1, number, 1), f"10.{number}.0.1/24"],
        ["set", "Logical_Router_Port", leg, f"options:requested-tnl-key={10 + number}"],
        ["lsp-add", name, back],
        ["lsp-set-type", back, "router"],
        ["lsp-set-addresses", back, "router"],
        ["lsp-set-options", back, f"router-port={leg}", "requested-tnl-key=1"],
    ]
    for n in range(PORTS_PER_SWITCH):
        location = f"{mac(2, number, n)} {address(number, n)}"
        commands += [
            ["lsp-add", name, port(number, n)],
            ["lsp-set-addresses", port(number, n), location],
            ["lsp-set-port-security", port(number, n), location],
            ["lsp-set-options", port(number, n), f"requested-tnl-key={10 + n}"],
        ]
    return commands


def _address_sets():
    commands = []
    for number in range(ADDRESS_SETS):
        addresses = [address(s, n) for s in range(number, SWITCHES, ADDRESS_SETS)
                     for n in range(PORTS_PER_SWITCH)]
        quoted = " ".join(f'"{a}"' for a in addresses)
        commands.append(["create", "Address_Set", f"name=as{number}",
                         f"addresses={quoted.replace(' ', ',')}"])
    return commands


def _port_group(number):
    ports = [port(s, n) for s in range(SWITCHES)
             for n in range(number, PORTS_PER_SWITCH, PORT_GROUPS)]
    return [["pg-add", f"pg{number}", *ports]]


def _acls():
    commands = []
    for number in range(PORT_GROUPS):
        group = f"pg{number}"
        source = f"$as{number % ADDRESS_SETS}"
        commands += [
            ["--type=port-group", "acl-add", group, "to-lport", "1001",
             f"outport == @{group} && ip4.src == {source} && tcp.dst == {8000 + number}",
             "allow-related"],
            ["--type=port-group", "acl-add", group, "from-lport", "1001",
             f"inport == @{group} && ip4", "allow-related"],
            ["--type=port-group", "acl-add", group, "to-lport", "1000",
             f"outport == @{group} && ip", "drop"],
        ]
    for number in range(0, SWITCHES, 4):
        commands += [
            [f"--name=log-{number}", "--severity=info", "--log", "acl-add", switch(number),
             "to-lport", "900", f"ip4.dst == 10.{number}.0.99", "reject"],
            ["acl-add", switch(number), "from-lport", "901", "arp", "allow"],
        ]
    return commands


def _load_balancers():
    commands = []
    for number in range(LOAD_BALANCERS):
        name, first = f"lb{number}", number % SWITCHES
        backends = ",".join(f"{address(s % SWITCHES, number)}:80" for s in range(first, first + 5))
        commands += [
            ["lb-add", name, f"192.168.1.{number + 1}:80", backends, "tcp"],
            ["lb-add", name, f"192.168.2.{number + 1}:53", f"{address(first, 1)}:53", "tcp"],
            ["ls-lb-add", switch(first), name],
            ["ls-lb-add", switch((first + 7) % SWITCHES), name],
        ]
    commands += [
        ["--id=@group", "create", "Load_Balancer_Group", "name=all"],
        ["add", "Logical_Switch", switch(3), "load_balancer_group", "@group"],
        ["add", "Logical_Switch", switch(4), "load_balancer_group", "@group"],
        ["--id=@member", "create", "Load_Balancer", "name=in-group", "protocol=udp",
         'vips:"192.168.3.1:53"="10.3.0.10:53,10.4.0.10:53"', "selection_fields=ip_src,ip_dst"],
        ["add", "Load_Balancer_Group", "all", "load_balancer", "@member"],
    ]
    return commands


def _services():
    """One of each of the smaller tables, for the sake of their column types."""
    return [
        ["lr-nat-add", "r0", "snat", "203.0.113.1", "10.0.0.0/24"],
        ["lr-nat-add", "r0", "dnat", "203.0.113.2", address(0, 1)],
        ["lr-policy-add", "r0", "500", "ip4.src == 10.2.0.0/24", "drop"],
        ["lr-policy-add", "r0", "400", "ip4.src == 10.4.0.0/24", "reroute", "172.16.0.2"],
        ["meter-add", "fair", "drop", "100", "kbps", "20"],
        ["--id=@dhcp", "create", "DHCP_Options", "cidr=10.0.0.0/24", "options:lease_time=3600",
         "options:router=10.0.0.1", "options:server_id=10.0.0.1",
         'options:server_mac="0a:00:01:00:00:01"', "external_ids:owner=scenario"],
        ["set", "Logical_Switch_Port", port(0, 0), "dhcpv4_options=@dhcp"],
        ["set", "Logical_Switch_Port", port(0, 1), "dhcpv4_options=@dhcp"],
        ["qos-add", switch(0), "from-lport", "100", "ip4", "rate=1000", "burst=100", "dscp=10"],
        ["--id=@dns", "create", "DNS", 'records:vm0.example="10.0.0.10"',
         'records:vm1.example="10.0.0.11"'],
        ["set", "Logical_Switch", switch(0), "dns_records=@dns"],
        ["lrp-set-gateway-chassis", "r0-r1", "ch0", "20"],
        ["lrp-set-gateway-chassis", "r0-r1", "ch1", "10"],
    ]


def chassis():
    """Chassis as ovn-controller would register them, and ports bound to them."""
    commands = []
    for number in range(CHASSIS):
        commands.append(["chassis-add", f"ch{number}", "geneve", f"192.0.2.{number + 1}"])
    for number in range(SWITCHES):
        commands.append(["lsp-bind", port(number, 0), f"ch{number % CHASSIS}"])
    return commands


def bound_ports():
    return [port(number, 0) for number in range(SWITCHES)]


def changes():
    """A second round that modifies and removes, so that not only insertions are seen."""
    yield [
        ["lsp-del", port(5, 3)],
        ["ls-del", switch(19)],
        ["lrp-del", f"r{19 % ROUTERS}-{switch(19)}"],
        ["lb-del", "lb2"],
        ["acl-del", "pg1", "to-lport", "1000", "outport == @pg1 && ip"],
        ["remove", "Address_Set", "as0", "addresses", f'"{address(0, 4)}"'],
        ["add", "Address_Set", "as0", "addresses", '"198.51.100.7"'],
        ["set", "Logical_Switch_Port", port(6, 6), "enabled=false"],
        ["clear", "Logical_Switch_Port", port(7, 7), "port_security"],
        ["remove", "Port_Group", "pg3", "external_ids", "none"],
        ["pg-del", "pg5"],
        ["lr-route-del", "r1", "192.168.7.0/24"],
        ["lsp-set-addresses", port(8, 8), "unknown"],
    ]
    yield [
        ["--may-exist", "ls-add", switch(18)],
        ["--if-exists", "lsp-del", "no-such-port"],
        ["lsp-add", switch(5), "sw05-late"],
        ["lsp-set-addresses", "sw05-late", "0a:00:03:05:00:01 10.5.0.200"],
        ["lsp-set-options", "sw05-late", "requested-tnl-key=200"],
        ["set", "NB_Global", ".", "external_ids:phase=changed"],
    ]


def bridges():
    """The switch of one chassis, for ovs-vsctl; ports exist in the dummy datapath only."""
    commands = [
        ["add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=dummy",
         "fail_mode=secure", "other_config:hwaddr=0a:00:0b:00:00:01",
         "other_config:datapath-id=00000a000b000001"],
        ["set", "Open_vSwitch", ".", "external_ids:system-id=ch0",
         "external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=192.0.2.1"],
    ]
    for number in range(SWITCHES):
        name = f"vif{number}"
        commands.append(["add-port", "br-int", name, "--", "set", "Interface", name, "type=dummy",
                         f"external_ids:iface-id={port(number, 0)}",
                         f"ofport_request={number + 1}"])
    commands += [
        ["set", "Port", "vif0", "tag=7", "trunks=1,2,3", "qos=@qos", "--", "--id=@qos", "create",
         "QoS", "type=linux-htb", "queues=0=@queue", "--", "--id=@queue", "create", "Queue",
         "other_config:max-rate=1000000"],
        ["add-bond", "br-int", "bond0", "b0", "b1", "lacp=off", "--", "set", "Interface", "b0",
         "type=dummy", "ofport_request=101", "--", "set", "Interface", "b1", "type=dummy",
         "ofport_request=102"],
        ["--", "--id=@vif1", "get", "Port", "vif1", "--", "--id=@m", "create", "Mirror",
         "name=m0", "select-all=true", "output-port=@vif1", "--", "set", "Bridge", "br-int",
         "mirrors=@m"],
        ["del-port", "br-int", "vif19"],
    ]
    return commands
